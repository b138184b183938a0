// Checks pictures as texts of XML.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace trainyard::testing {

// Counts how often a text occurs.
inline int CountOf(absl::string_view text, absl::string_view word) {
  int count = 0;
  for (size_t at = text.find(word); at != absl::string_view::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

// Returns what is wrong with the text as XML: tags that do not close each other, and bare & or <.
inline std::string MistakeOfXml(absl::string_view text) {
  std::vector<std::string> open;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '&') {
      const size_t end = text.find(';', i);
      const absl::string_view name = text.substr(i + 1, end - i - 1);
      if (name != "amp" && name != "lt" && name != "gt" && name != "quot") {
        return absl::StrCat("a bare & before ", text.substr(i, 20));
      }
    }
    if (text[i] != '<') continue;
    const size_t end = text.find('>', i);
    if (end == absl::string_view::npos) return "a tag does not end";
    const absl::string_view tag = text.substr(i + 1, end - i - 1);
    if (absl::StrContains(tag, '<')) return absl::StrCat("a bare < in ", tag);
    if (CountOf(tag, "\"") % 2 != 0) return absl::StrCat("an open quote in ", tag);
    const std::string name(tag.substr(0, tag.find_first_of(" /", 1)));
    if (tag.front() == '/') {
      if (open.empty() || "/" + open.back() != tag)
        return absl::StrCat("<", tag, "> closes nothing");
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    i = end;
  }
  return open.empty() ? "" : absl::StrCat(open.back(), " is not closed");
}

}  // namespace trainyard::testing
