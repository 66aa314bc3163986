// SPDX-License-Identifier: Apache-2.0
// The line editor of a terminal, on libedit. While a line is edited the terminal sends Ctrl-C as a
// key, so that it gives up the line and nothing else. A paste of several lines stands in the line
// as a short mark, and its text takes the mark's place when the line is done.
#include <histedit.h>
#include <signal.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cwchar>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.hpp"
#include "cli/chat/line_reader.hpp"
#include "cli/output.hpp"

namespace lemma::cli::chat {
namespace {

constexpr std::string_view kPasteOn = "\x1b[?2004h", kPasteOff = "\x1b[?2004l";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";
constexpr std::size_t kLongestInLine = 400;  ///< characters of a paste that are shown as they are
constexpr std::size_t kLongestInHistory = 2000;
constexpr int kHistory = 500;

std::string narrow(std::wstring_view text) {
  std::string out;
  for (const wchar_t c : text) base::append_utf8(out, static_cast<char32_t>(c));
  return out;
}

std::wstring wide(std::string_view text) {
  std::wstring out;
  while (!text.empty()) {
    const base::Decoded next = base::decode_utf8(text);
    out += static_cast<wchar_t>(next.code_point);
    text.remove_prefix(next.length);
  }
  return out;
}

/// libedit reads and measures characters by the locale, which must know UTF-8.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  wchar_t out = 0;
  std::mbstate_t state{};
  if (std::mbrtowc(&out, "\u4e16", 3, &state) != 3) std::setlocale(LC_CTYPE, "C.UTF-8");
}

class EditingReader final : public LineReader {
 public:
  EditingReader() {
    use_utf8();
    screen_ = ::fdopen(::dup(STDERR_FILENO), "w");
    edit_ = ::el_init("lemma", stdin, screen_, screen_);
    history_ = ::history_winit();
    HistEventW event;
    ::history_w(history_, &event, H_SETSIZE, kHistory);
    ::history_w(history_, &event, H_SETUNIQUE, 1);
    set_up();
  }
  ~EditingReader() override {
    ::history_wend(history_);
    ::el_end(edit_);
    std::fclose(screen_);
  }
  EditingReader(const EditingReader&) = delete;
  EditingReader& operator=(const EditingReader&) = delete;

  Line read(std::string_view prompt) override {
    prompt_ = wide(prompt);
    interrupted_ = false;
    write_err(kPasteOn);
    int count = 0;
    const wchar_t* const typed = ::el_wgets(edit_, &count);
    write_err(kPasteOff);
    if (interrupted_) write_err("^C\n");
    if (!typed && !interrupted_) {
      write_err("\n");
      return {Line::Kind::kEnd, {}};
    }
    std::string text = typed ? narrow({typed, static_cast<std::size_t>(count)}) : std::string();
    if (text.ends_with('\n')) text.pop_back();
    for (const auto& [mark, pasted] : pastes_)
      if (const std::size_t at = text.find(mark); at != std::string::npos)
        text.replace(at, mark.size(), pasted);
    pastes_.clear();
    return {interrupted_ ? Line::Kind::kInterrupted : Line::Kind::kText, std::move(text)};
  }

  void remember(std::string_view message) override {
    if (message.empty() || message.size() > kLongestInHistory) return;
    HistEventW event;
    ::history_w(history_, &event, H_ENTER, wide(message).c_str());
  }

 private:
  static EditingReader& of(EditLine* edit) {
    void* self = nullptr;
    ::el_wget(edit, EL_CLIENTDATA, &self);
    return *static_cast<EditingReader*>(self);
  }

  void set_up() {
    ::el_wset(edit_, EL_CLIENTDATA, this);
    ::el_wset(
        edit_, EL_PROMPT, +[](EditLine* edit) { return of(edit).prompt_.data(); });
    ::el_wset(edit_, EL_EDITOR, L"emacs");
    ::el_wset(edit_, EL_HIST, ::history_w, history_);
    ::el_wset(edit_, EL_SIGNAL, 1);  // a new size of the window
    ::el_wset(edit_, EL_SETTY, L"-d", L"-isig", nullptr);
    // Ctrl-C goes to the end of the line first, so that what follows stands below it.
    add(L"lemma-interrupt", L"\\034", [](EditLine* edit, wint_t) -> unsigned char {
      of(edit).interrupted_ = true;
      return CC_NEWLINE;
    });
    ::el_wset(edit_, EL_BIND, L"-s", L"^C", L"\\005\\034", nullptr);
    add(L"lemma-suspend", L"^Z", suspend);
    add(L"lemma-paste", L"\\e[200~", paste);
    constexpr const wchar_t* kKeys[][2] = {
        {L"^W", L"ed-delete-prev-word"},     {L"^R", L"em-inc-search-prev"},
        {L"\\e[3~", L"ed-delete-next-char"}, {L"\\e[H", L"ed-move-to-beg"},
        {L"\\e[F", L"ed-move-to-end"},       {L"\\e[1~", L"ed-move-to-beg"},
        {L"\\e[4~", L"ed-move-to-end"},      {L"\\eOH", L"ed-move-to-beg"},
        {L"\\eOF", L"ed-move-to-end"},       {L"\\e[1;5D", L"ed-prev-word"},
        {L"\\e[1;5C", L"em-next-word"},
    };
    for (const auto& key : kKeys) ::el_wset(edit_, EL_BIND, key[0], key[1], nullptr);
  }

  void add(const wchar_t* name, const wchar_t* key, unsigned char (*function)(EditLine*, wint_t)) {
    ::el_wset(edit_, EL_ADDFN, name, name, function);
    ::el_wset(edit_, EL_BIND, key, name, nullptr);
  }

  static unsigned char suspend(EditLine* edit, wint_t) {
    write_err(kPasteOff);
    ::el_wset(edit, EL_PREP_TERM, 0);
    ::raise(SIGTSTP);
    ::el_wset(edit, EL_PREP_TERM, 1);
    write_err(kPasteOn);
    return CC_REDISPLAY;
  }

  static unsigned char paste(EditLine* edit, wint_t) {
    std::wstring text;
    wchar_t next = 0;
    while (::el_wgetc(edit, &next) == 1) {
      text += next;
      if (text.ends_with(kPasteEnd)) break;
    }
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    const std::wstring shown = of(edit).shown_for(text);
    return ::el_winsertstr(edit, shown.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  /// What stands in the line for a paste: itself, or a mark.
  std::wstring shown_for(std::wstring_view pasted) {
    std::wstring text;
    std::size_t lines = 1;
    for (std::size_t i = 0; i < pasted.size(); ++i) {
      const bool pair = pasted[i] == L'\r' && i + 1 < pasted.size() && pasted[i + 1] == L'\n';
      if (!pair) text += pasted[i] == L'\r' ? L'\n' : pasted[i];
    }
    while (text.ends_with(L'\n')) text.pop_back();
    for (const wchar_t c : text) lines += c == L'\n';
    if (lines == 1 && text.size() <= kLongestInLine) return text;
    std::string mark = fmt::format(
        "[pasted {}: {}]", ++paste_count_,
        lines > 1 ? fmt::format("{} lines", lines) : fmt::format("{} characters", text.size()));
    std::wstring shown = wide(mark);
    pastes_.emplace_back(std::move(mark), narrow(text));
    return shown;
  }

  std::FILE* screen_ = nullptr;
  EditLine* edit_ = nullptr;
  HistoryW* history_ = nullptr;
  std::wstring prompt_;
  bool interrupted_ = false;
  std::vector<std::pair<std::string, std::string>> pastes_;  ///< marks and what they stand for
  std::size_t paste_count_ = 0;
};

}  // namespace

std::unique_ptr<LineReader> editing_reader() {
  return std::make_unique<EditingReader>();
}

}  // namespace lemma::cli::chat
