// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/template.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "lemma/error.hpp"
#include "test_data.hpp"
#include "text/jinja/json.hpp"

namespace lemma::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

constexpr CivilTime kNow = {2025, 7, 4, 12, 34, 56};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The rendered text, or "error: " and the message.
std::string render(const std::string& source, const std::string& variables = "{}",
                   Limits limits = {}) {
  try {
    return Template::parse(source).render(read_json(variables), {limits, kNow}).bytes;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTemplate) << error.what();
    return std::string("error: ") + error.what();
  }
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.ends_with(end);
}

/// Renders one recorded conversation and compares with what Python made of it.
void check_recorded(const std::string& source, const Json& file, const Json& recorded) {
  Json variables = recorded["kwargs"];
  variables["messages"] = recorded["messages"];
  variables["tools"] = recorded["tools"];
  variables["documents"] = nullptr;
  variables["bos_token"] = file["bos_token"];
  variables["eos_token"] = file["eos_token"];
  const std::string result = render(source, variables.dump());
  if (recorded.contains("error")) {
    EXPECT_TRUE(ends_with(result, ": " + recorded["error"].get<std::string>())) << result;
  } else {
    EXPECT_EQ(result, recorded["rendered"].get<std::string>());
  }
}

TEST(Template, RendersEveryRecordedConversationAsJinjaDoes) {
  LEMMA_TEST_DATA_OR_SKIP(folder, "templates");
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "expected")) {
    const Json file = Json::parse(read_file(entry.path()));
    const std::string source = read_file(folder / file["template"].get<std::string>());
    for (const Json& recorded : file["cases"]) {
      SCOPED_TRACE(file["template"].get<std::string>() + " " + recorded["name"].get<std::string>());
      check_recorded(source, file, recorded);
      ++count;
    }
  }
  EXPECT_GT(count, 700U);
}

TEST(Template, RendersOwnCasesAsJinjaDoes) {
  const Json file =
      Json::parse(read_file(test::source_dir() / "tests/fixtures/data/jinja_cases.json"));
  for (const Json& recorded : file["cases"]) {
    const auto source = recorded["template"].get<std::string>();
    SCOPED_TRACE(source);
    const std::string result = render(source, recorded["variables"].get<std::string>());
    if (!recorded.contains("error")) {
      EXPECT_EQ(result, recorded["text"].get<std::string>());
    } else {
      EXPECT_TRUE(result.starts_with("error: line ")) << result;
      if (recorded["syntax"].get<bool>()) continue;
      EXPECT_TRUE(ends_with(result, ": " + recorded["error"].get<std::string>())) << result;
    }
  }
}

TEST(Template, WritesJsonAsModelsWereTrainedOnIt) {
  const std::string x = R"({"x": {"b":"<é>&'","a":[1,2.0,null,true]}})";
  const std::string plain = R"({"b": "<é>&'", "a": [1, 2.0, null, true]})";
  EXPECT_EQ(render("{{ x|tojson }}", x), plain);
  EXPECT_EQ(render("{{ x|tojson(ensure_ascii=False) }}", x), plain);
  EXPECT_EQ(render("{{ x|tojson(separators=(',',':')) }}", x),
            R"({"b":"<é>&'","a":[1,2.0,null,true]})");
  EXPECT_EQ(render("{{ x|tojson(indent=2) }}", x),
            "{\n  \"b\": \"<é>&'\",\n  \"a\": [\n    1,\n    2.0,\n    null,\n    true\n  ]\n}");
}

TEST(Template, RaisesItsOwnExceptionInItsOwnWords) {
  const std::string source =
      "{% for m in messages %}\n"
      "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}\n"
      "  {{ raise_exception('roles must alternate') }}\n"
      "{% endif %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(render(source, R"({"messages": [{"role": "user", "content": "a"},
                                            {"role": "user", "content": "b"}]})"),
            "error: line 3, column 21: roles must alternate");
  EXPECT_EQ(render(source, R"({"messages": [{"role": "user", "content": "a"}]})"), "a");
}

TEST(Template, NamesLineAndColumnOfMistakes) {
  EXPECT_EQ(render("a\nbé {{ 1 ! 2 }}"), "error: line 2, column 9: unexpected char '!'");
  EXPECT_EQ(render("{% nope %}"), "error: line 1, column 4: Encountered unknown tag 'nope'.");
  EXPECT_EQ(render("\n\n  {{ x.y.z }}", R"({"x": {}})"),
            "error: line 3, column 9: 'dict object' has no attribute 'y'");
  EXPECT_EQ(render("{{ 1|nope }}"), "error: line 1, column 6: No filter named 'nope'.");
}

TEST(Template, RefusesWhatItDoesNotSupport) {
  for (const char* source :
       {"{{ 'a b'|wordwrap(1) }}", "{% autoescape true %}{% endautoescape %}", "{{ 'a'.encode() }}",
        "{{ 9223372036854775807 + 1 }}", "{{ 9223372036854775808 }}", "{% do x %}",
        "{% include 'x' %}", "{{ {}.items }}"})
    EXPECT_TRUE(render(source).starts_with("error: line 1")) << source << render(source);
}

TEST(Template, BoundsTheWork) {
  const Limits few{.steps = 10'000};
  EXPECT_TRUE(ends_with(render("{% for a in range(999) %}{% for b in range(999) %}{% endfor %}"
                               "{% endfor %}",
                               "{}", few),
                        "the template takes more than 10000 steps"));
  // Comparing, searching and sorting count too.
  EXPECT_TRUE(ends_with(
      render("{% for a in range(99) %}{{ range(9999)|sort|length }}{% endfor %}", "{}", few),
      "steps"));
}

TEST(Template, BoundsTheOutputAndTheMemory) {
  const Limits small{.output = 1000, .memory = 100'000};
  EXPECT_TRUE(ends_with(render("{{ 'a' * 1001 }}", "{}", small), "more than 1000 bytes"));
  EXPECT_TRUE(ends_with(render("{% for i in range(400) %}abc{% endfor %}", "{}", small),
                        "more than 1000 bytes"));
  EXPECT_TRUE(ends_with(render("{% set n = namespace(s='x') %}{% for i in range(64) %}"
                               "{% set n.s = n.s ~ n.s %}{% endfor %}",
                               "{}", small),
                        "bytes"));
  EXPECT_TRUE(
      ends_with(render("{% for i in range(900) %}{% set x = 'a' * 900 %}{% endfor %}", "{}", small),
                "more than 100000 bytes of text and lists"));
  EXPECT_TRUE(ends_with(render("{{ 'a' * 9223372036854775807 }}"), "bytes"));
  EXPECT_TRUE(ends_with(render("{{ 'a'.center(9223372036854775807) }}"), "bytes"));
}

TEST(Template, BoundsTheDepth) {
  const auto deep = [](int n, const char* open, const char* inner, const char* close) {
    std::string source;
    for (int i = 0; i < n; ++i) source += open;
    source += inner;
    for (int i = 0; i < n; ++i) source += close;
    return source;
  };
  constexpr int kMany = 20'000;
  EXPECT_TRUE(ends_with(render("{{ " + deep(kMany, "(", "1", ")") + " }}"), "too deep"));
  EXPECT_TRUE(ends_with(render("{{ " + deep(kMany, "-", "1", "") + " }}"), "too deep"));
  EXPECT_TRUE(ends_with(render("{{ " + deep(kMany, "not ", "1", "") + " }}"), "too deep"));
  EXPECT_TRUE(ends_with(render("{{ 1" + deep(kMany, "|abs", "", "") + " }}"), "too deep"));
  EXPECT_TRUE(ends_with(render("{{ 1" + deep(kMany, "+1", "", "") + " }}"), "too deep"));
  EXPECT_TRUE(ends_with(render("{{ x" + deep(kMany, ".x", "", "") + " }}"), "too deep"));
  EXPECT_TRUE(ends_with(render(deep(kMany, "{% if 1 %}", "", "{% endif %}")), "too deep"));
  EXPECT_TRUE(ends_with(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "deep"));
  EXPECT_TRUE(ends_with(render("{% set n = namespace(x=1) %}{% for i in range(999) %}"
                               "{% set n.x = [n.x] %}{% endfor %}"),
                        "deep"));
  EXPECT_TRUE(ends_with(render("{% set n = namespace() %}{% set n.n = n %}{{ n }}"), "exceeded"));
  // What Python can do is done.
  EXPECT_EQ(render("{{ " + deep(50, "(", "1", ")") + " }}"), "1");
  EXPECT_EQ(render("{% macro m(n) %}{{ n }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}"
                   "{{ m(100)|length }}"),
            "193");
}

TEST(Template, RefusesJsonThatItCannotHold) {
  EXPECT_THROW(read_json("{"), Error);
  EXPECT_THROW(read_json("[1] 2"), Error);
  EXPECT_THROW(read_json("9223372036854775808"), Error);
  EXPECT_THROW(read_json("123456789012345678901234567890"), Error);
  EXPECT_THROW(read_json("1e999"), Error);
  EXPECT_THROW(read_json("\"\xff\""), Error);
  EXPECT_THROW(read_json(std::string(100'000, '[')), Error);
  EXPECT_EQ(render("{{ x }}", R"({"x": {"b": 1, "a": 2, "b": 3}})"), "{'b': 3, 'a': 2}");
}

/// The text with what came from variables between brackets.
std::string marked(const std::string& source, const std::string& variables) {
  const Text text = Template::parse(source).render(read_json(variables), {{}, kNow});
  std::string result;
  std::size_t at = 0;
  for (const Span& span : text.input) {
    result += text.bytes.substr(at, span.begin - at) + "[" +
              text.bytes.substr(span.begin, span.end - span.begin) + "]";
    at = span.end;
  }
  return result + text.bytes.substr(at);
}

TEST(Template, RemembersWhichBytesCameFromVariables) {
  const std::string x = R"({"x": "Ab c", "l": ["q", "é"], "d": {"k": "v"}, "n": 5})";
  EXPECT_EQ(marked("<{{ x }}>", x), "<[Ab c]>");
  EXPECT_EQ(marked("{{ '<' + x + '>' ~ x }}", x), "<[Ab c]>[Ab c]");
  EXPECT_EQ(marked("{{ x|upper }}{{ x[1:] }}{{ x|replace('b', 'ZZ') }}", x), "[AB Cb cA]ZZ[ c]");
  EXPECT_EQ(marked("{{ 'abc'|replace('b', x) }}", x), "a[Ab c]c");
  EXPECT_EQ(marked("{{ x.split(' ')|join('-') }}{{ l|join(', ') }}", x), "[Ab]-[cq], [é]");
  EXPECT_EQ(marked("{{ l }}{{ d }}{{ n }}", x), "['[q]', '[é]']{'[k]': '[v]'}5");
  EXPECT_EQ(marked("{{ d|tojson }}", x), "{\"[k]\": \"[v]\"}");
  EXPECT_EQ(marked("{% set y %}a{{ x }}b{% endset %}{{ y|indent(2, true) }}", x), "  a[Ab c]b");
  EXPECT_EQ(marked("{% macro m(a) %}({{ a }}){% endmacro %}{{ m(x)|trim('(') }}", x), "[Ab c])");
  EXPECT_EQ(marked("{{ '%s!%5s' % (x, 'q') }}{{ '{}.{}'.format(x, 1) }}", x),
            "[Ab c]!    q[Ab c].1");
  EXPECT_EQ(marked("{{ x.strip('A')|title|center(6) }}|{{ x|reverse }}", x), " [B C]  |[c bA]");
  EXPECT_EQ(marked("{% for c in x %}{{ c }}.{% endfor %}", x), "[A].[b].[ ].[c].");
}

TEST(Template, RendersTheSameTwice) {
  const Template once = Template::parse(
      "{% set n = namespace(i=0) %}{% for x in l %}"
      "{% set n.i = n.i + x %}{% endfor %}{{ n.i }}");
  const Value variables = read_json(R"({"l": [1, 2, 3]})");
  EXPECT_EQ(once.render(variables).bytes, "6");
  EXPECT_EQ(once.render(variables).bytes, "6");
}

}  // namespace
}  // namespace lemma::text::jinja
