// SPDX-License-Identifier: Apache-2.0
#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <fstream>
#include <memory>
#include <span>
#include <string_view>
#include <thread>

#include "base/raise.hpp"
#include "cli/models/sha256.hpp"
#include "cli/models/transfer.hpp"

namespace lemma::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 5;          ///< without a new byte
constexpr long kConnectSeconds = 30;  ///< until a host answers
constexpr long kStallSeconds = 60;    ///< without a byte, after which a connection is dead
constexpr std::chrono::milliseconds kFirstPause{200};

/// One GET. What arrives goes to `body`, which returns false to end it.
class Get {
 public:
  using Body = std::function<bool(std::span<const char>)>;

  /// From byte `from` on, if the file is still the one that had `etag`; else all of it.
  Get(const Request& request, std::uint64_t from, const std::string& etag, Body body)
      : body_(std::move(body)) {
    static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    handle_.reset(ready ? curl_easy_init() : nullptr);
    if (!handle_) base::raise(ErrorKind::kInternal, "libcurl does not start");
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, 10L);
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, kStallSeconds);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_USERAGENT, "lemma");
    set(CURLOPT_ERRORBUFFER, error_);
    set(CURLOPT_WRITEFUNCTION, &Get::take);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_HEADERFUNCTION, &Get::take_header);
    set(CURLOPT_HEADERDATA, this);
    if (from > 0) {
      set(CURLOPT_RANGE, fmt::format("{}-", from).c_str());
      if (!etag.empty()) {
        headers_.reset(curl_slist_append(nullptr, ("If-Range: " + etag).c_str()));
        set(CURLOPT_HTTPHEADER, headers_.get());
      }
    }
    if (!request.token.empty()) {
      // Not a header of our own, which would go along to whoever a redirection names.
      set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
      set(CURLOPT_XOAUTH2_BEARER, request.token.c_str());
    }
  }

  CURLcode perform() {
    result_ = curl_easy_perform(handle_.get());
    return result_;
  }
  long status() const {
    long status = 0;
    curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }
  /// Bytes of this answer's body as the server announced them.
  std::optional<std::uint64_t> announced() const {
    curl_off_t n = -1;
    curl_easy_getinfo(handle_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &n);
    if (n < 0) return {};
    return static_cast<std::uint64_t>(n);
  }
  /// The file's version, as the server names it; empty where it names none that is strong.
  const std::string& etag() const noexcept { return etag_; }
  /// Where the body stands in the file.
  std::uint64_t start() const noexcept { return start_; }
  std::string reason() const { return error_[0] ? error_ : curl_easy_strerror(result_); }

 private:
  template <typename T>
  void set(CURLoption option, T value) {
    if (const CURLcode code = curl_easy_setopt(handle_.get(), option, value); code != CURLE_OK)
      base::raise(ErrorKind::kInternal, "libcurl: {}", curl_easy_strerror(code));
  }
  static std::size_t take(char* bytes, std::size_t size, std::size_t n, void* self) noexcept {
    try {
      return static_cast<Get*>(self)->body_({bytes, size * n}) ? size * n : 0;
    } catch (...) {
      return 0;
    }
  }

  static std::size_t take_header(char* bytes, std::size_t size, std::size_t n,
                                 void* self) noexcept {
    try {
      static_cast<Get*>(self)->header({bytes, size * n});
      return size * n;
    } catch (...) {
      return 0;
    }
  }
  void header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // of the next host, behind a redirection
      etag_.clear();
      start_ = 0;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
    value = value.substr(0, value.find_last_not_of(" \t\r\n") + 1);
    if (name == "etag" && value.starts_with('"')) etag_ = value;
    constexpr std::string_view kBytes = "bytes ";
    if (name == "content-range" && value.starts_with(kBytes)) {
      value.remove_prefix(kBytes.size());
      std::from_chars(value.data(), value.data() + value.size(), start_);
    }
  }

  struct Cleanup {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };
  std::unique_ptr<CURL, Cleanup> handle_;
  std::unique_ptr<curl_slist, Cleanup> headers_;
  std::string etag_;
  std::uint64_t start_ = 0;
  Body body_;
  char error_[CURL_ERROR_SIZE] = "";
  CURLcode result_ = CURLE_OK;
};

/// Throws for an answer that is no success.
void require_success(long status, const std::string& url) {
  if (status == 200 || status == 206) return;
  if (status == 404) base::raise(ErrorKind::kNotFound, "{}: not found (HTTP status 404)", url);
  if (status == 401 || status == 403)
    base::raise(ErrorKind::kUsage,
                "{}: access denied (HTTP status {}); a private or gated model needs a token in the "
                "environment variable HF_TOKEN",
                url, status);
  base::raise(ErrorKind::kIo, "{}: HTTP status {}", url, status);
}

bool worth_another_try(CURLcode code, long status) {
  if (status == 429 || status >= 500) return true;
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

/// A file that grows by what arrives, and beside it the version of the file that it is a part of.
class Part {
 public:
  explicit Part(const fs::path& path) : path_(path), version_(path.string() + ".etag") {
    std::error_code none;
    size_ = fs::exists(path_) ? fs::file_size(path_, none) : 0;
    std::getline(std::ifstream(version_), etag_);
    open(std::ios::app);
  }
  std::uint64_t size() const noexcept { return size_; }
  const std::string& etag() const noexcept { return etag_; }
  /// Starts anew with a file of another version.
  void restart() {
    file_.close();
    size_ = 0;
    open(std::ios::trunc);
    note_version("");
  }
  void note_version(const std::string& etag) {
    etag_ = etag;
    std::error_code none;
    if (etag.empty())
      fs::remove(version_, none);
    else
      std::ofstream(version_) << etag << '\n';
  }
  bool append(std::span<const char> bytes) {
    file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    size_ += bytes.size();
    return static_cast<bool>(file_);
  }
  /// Makes sure that all of it is in the file.
  void flush() {
    file_.flush();
    if (!file_) base::raise(ErrorKind::kIo, "{}: cannot be written", path_.string());
  }
  void remove() {
    file_.close();
    std::error_code none;
    fs::remove(path_, none);
    fs::remove(version_, none);
  }
  void publish(const fs::path& path) {
    file_.close();
    fs::rename(path_, path);
    std::error_code none;
    fs::remove(version_, none);
  }

 private:
  void open(std::ios::openmode mode) {
    file_.open(path_, std::ios::binary | mode);
    if (!file_) base::raise(ErrorKind::kIo, "{}: cannot be written", path_.string());
  }
  fs::path path_, version_;
  std::string etag_;
  std::ofstream file_;
  std::uint64_t size_ = 0;
};

/// Takes the body of one answer into a file.
class Receiver {
 public:
  Receiver(const Download& order, Part& part) : order_(order), part_(part), size_(order.size) {}

  bool take(const Get& get, std::span<const char> bytes) {
    if (get.status() != 200 && get.status() != 206) return true;  // the page of an error
    if (!begun_) begin(get);
    if (wrong_place_) return false;
    if (size_ && part_.size() + bytes.size() > *size_) {
      too_long_ = true;
      return false;
    }
    if (!part_.append(bytes)) return false;
    if (order_.progress) order_.progress(part_.size(), size_);
    return true;
  }
  bool too_long() const noexcept { return too_long_; }
  bool wrong_place() const noexcept { return wrong_place_; }
  std::optional<std::uint64_t> size() const noexcept { return size_; }

 private:
  void begin(const Get& get) {
    begun_ = true;
    if (get.status() == 200 && part_.size() > 0) part_.restart();  // it sends all of it anew
    wrong_place_ = get.status() == 206 && get.start() != part_.size();
    part_.note_version(get.etag());
    if (const auto n = get.announced(); n && !size_) size_ = part_.size() + *n;
  }

  const Download& order_;
  Part& part_;
  std::optional<std::uint64_t> size_;
  bool begun_ = false, too_long_ = false, wrong_place_ = false;
};

/// One attempt; true when the file is whole as far as the server knows.
bool attempt(const Download& order, Part& part, std::string& reason) {
  Receiver receiver(order, part);
  Get* self = nullptr;
  Get get(order.request, part.size(), part.etag(),
          [&](std::span<const char> bytes) { return receiver.take(*self, bytes); });
  self = &get;
  const CURLcode code = get.perform();
  part.flush();
  if (receiver.too_long()) {
    part.remove();
    base::raise(ErrorKind::kIo, "{}: the server sends more than the {} bytes that it announced",
                order.request.url, *receiver.size());
  }
  const long status = get.status();
  if (status == 416 || receiver.wrong_place()) {
    part.restart();  // it has no such range: what is here is of another file
    reason = "the server does not go on where it stopped";
    return false;
  }
  if (code == CURLE_OK && (status == 200 || status == 206)) {
    if (!receiver.size() || part.size() == *receiver.size()) return true;
    reason = fmt::format("it ended after {} of {} bytes", part.size(), *receiver.size());
    return false;
  }
  reason = code == CURLE_OK ? fmt::format("HTTP status {}", status) : get.reason();
  if (worth_another_try(code, status)) return false;
  if (code == CURLE_OK) require_success(status, order.request.url);
  base::raise(ErrorKind::kIo, "{}: {}", order.request.url, reason);
}

}  // namespace

bool can_transfer() noexcept {
  return true;
}

std::string fetch_text(const Request& request, std::size_t limit) {
  std::string reason;
  auto pause = kFirstPause;
  for (int i = 0; i < kAttempts; ++i, pause *= 2) {
    std::string body;
    bool too_long = false;
    Get get(request, 0, "", [&](std::span<const char> bytes) {
      too_long = body.size() + bytes.size() > limit;
      if (!too_long) body.append(bytes.data(), bytes.size());
      return !too_long;
    });
    const CURLcode code = get.perform();
    if (too_long)
      base::raise(ErrorKind::kIo, "{}: an answer of more than {} bytes", request.url, limit);
    if (code == CURLE_OK && get.status() == 200) return body;
    reason = code == CURLE_OK ? fmt::format("HTTP status {}", get.status()) : get.reason();
    if (!worth_another_try(code, get.status())) {
      if (code == CURLE_OK) require_success(get.status(), request.url);
      break;
    }
    std::this_thread::sleep_for(pause);
  }
  base::raise(ErrorKind::kIo, "{}: {}", request.url, reason);
}

Downloaded download(const Download& order) {
  const fs::path partial = order.path.string() + ".partial";
  Part part(partial);
  // Without a digest or a version nobody could tell whether the part is of the same file.
  const bool known = order.sha256.has_value() || !part.etag().empty();
  if (!known || (order.size && part.size() > *order.size)) part.restart();
  Downloaded result{.resumed = part.size(), .sha256 = {}};
  std::string reason;
  auto pause = kFirstPause;
  for (int left = kAttempts; !(order.size && part.size() == *order.size);) {
    const std::uint64_t before = part.size();
    if (attempt(order, part, reason)) break;
    if (part.size() > before) {
      left = kAttempts;
      pause = kFirstPause;
    } else if (--left == 0) {
      base::raise(ErrorKind::kIo, "{}: {}; {} bytes are kept, the same command goes on from there",
                  order.request.url, reason, part.size());
    }
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
  part.flush();
  result.size = part.size();
  result.sha256 = sha256_of(partial);
  if (order.sha256 && *order.sha256 != result.sha256) {
    part.remove();
    base::raise(ErrorKind::kIo,
                "{}: its SHA-256 is {}, expected {}; the bytes are damaged and were deleted",
                order.request.url, result.sha256, *order.sha256);
  }
  part.publish(order.path);
  return result;
}

}  // namespace lemma::cli
