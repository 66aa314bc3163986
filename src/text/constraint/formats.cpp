// SPDX-License-Identifier: Apache-2.0
// The formats of JSON Schema (2020-12, Validation, section 7.3) as patterns, after the grammars of
// the RFCs that it names. ASCII only; where an RFC leaves room, the pattern takes the usual form.
#include <array>
#include <string>
#include <utility>

#include "text/constraint/char_dfa.hpp"

namespace lemma::text::constraint {
namespace {

using namespace std::string_literals;

std::string date() {
  // RFC 3339, full-date; February has 29 days in the years of the Gregorian rule.
  const std::string year = "[0-9]{4}";
  const std::string leap =
      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
  return "(?:" + year + "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])" +
         "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" + leap + "-02-29)";
}

std::string time() {
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
         "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
}

std::string hostname() {
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return label + "(?:\\." + label + "){0,15}";
}

std::string ipv4() {
  const std::string byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return "(?:" + byte + "\\.){3}" + byte;
}

/// RFC 4291, section 2.2: eight groups, or fewer with one "::"; the last two may be an IPv4
/// address.
std::string ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}";
  const std::string last = "(?:" + h + ":" + h + "|" + ipv4() + ")";
  std::string all = "(?:" + h + ":){6}" + last;
  for (int before = 0; before <= 7; ++before) {
    // `before` groups, "::", and up to 7 - before behind it.
    const std::string head =
        before == 0 ? "" : h + "(?::" + h + "){" + std::to_string(before - 1) + "}";
    std::string tail;
    for (int behind = 1; behind <= 7 - before; ++behind) {
      tail += "|" + h + "(?::" + h + "){" + std::to_string(behind - 1) + "}";
      if (behind >= 2) tail += "|(?:" + h + ":){" + std::to_string(behind - 2) + "}" + ipv4();
    }
    all += "|" + head + "::(?:" + tail + ")";
  }
  return "(?:" + all + ")";
}

std::string email() {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
  return atom + "{1,32}(?:\\." + atom + "{1,32}){0,2}@" +
         "[A-Za-z0-9](?:[A-Za-z0-9-]{0,29}[A-Za-z0-9])?"
         "(?:\\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,29}[A-Za-z0-9])?){1,4}";
}

std::string uri(bool relative) {
  const std::string pchar = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  const std::string user = "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?";
  const std::string host = "(?:(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)";
  const std::string authority = "//" + user + host + "(?::[0-9]{0,5})?";
  const std::string path = "(?:/" + pchar + "*)*";
  const std::string rest = "(?:\\?(?:" + pchar + "|[/?])*)?(?:#(?:" + pchar + "|[/?])*)?";
  const std::string hier =
      "(?:" + authority + path + "|/(?:" + pchar + "+" + path + ")?|" + pchar + "+" + path + "|)";
  const std::string absolute = "[A-Za-z][A-Za-z0-9+.-]*:" + hier + rest;
  if (!relative) return absolute;
  const std::string no_colon = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+";
  const std::string part =
      "(?:" + authority + path + "|/(?:" + pchar + "+" + path + ")?|" + no_colon + path + "|)";
  return "(?:" + absolute + "|" + part + rest + ")";
}

/// ISO 8601 as RFC 3339, appendix A gives it.
std::string duration() {
  const std::string n = "[0-9]{1,9}";
  const std::string second = n + "S";
  const std::string minute = n + "M(?:" + second + ")?";
  const std::string hour = n + "H(?:" + minute + ")?";
  const std::string clock = "T(?:" + hour + "|" + minute + "|" + second + ")";
  const std::string day = n + "D";
  const std::string month = n + "M(?:" + day + ")?";
  const std::string year = n + "Y(?:" + month + ")?";
  return "P(?:(?:" + day + "|" + month + "|" + year + ")(?:" + clock + ")?|" + clock + "|" + n +
         "W)";
}

using Entry = std::pair<std::string_view, std::string>;

const std::array<Entry, 13>& formats() {
  static const std::array<Entry, 13> table = [] {
    const auto whole = [](const std::string& pattern) { return "^(?:" + pattern + ")$"; };
    const std::string hex = "[0-9A-Fa-f]";
    const std::string step = "(?:/(?:[^/~]|~[01])*)*";
    return std::array<Entry, 13>{
        {{"date-time", whole(date() + "[Tt]" + time())},
         {"date", whole(date())},
         {"time", whole(time())},
         {"duration", whole(duration())},
         {"email", whole(email())},
         {"hostname", whole(hostname())},
         {"ipv4", whole(ipv4())},
         {"ipv6", whole(ipv6())},
         {"uuid", whole(hex + "{8}(?:-" + hex + "{4}){3}-" + hex + "{12}")},
         {"uri", whole(uri(false))},
         {"uri-reference", whole(uri(true))},
         {"json-pointer", whole(step)},
         {"relative-json-pointer", whole("(?:0|[1-9][0-9]{0,9})(?:#|" + step + ")")}}};
  }();
  return table;
}

}  // namespace

std::string_view format_pattern(std::string_view format) {
  for (const auto& [name, pattern] : formats()) {
    if (name == format) return pattern;
  }
  return {};
}

std::string known_formats() {
  std::string names;
  for (const auto& [name, pattern] : formats())
    names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace lemma::text::constraint
