// Counts names in production code and in tests, and compares the counts.
#include "tests/tidy/symbols.h"

#include <re2/re2.h>

#include <algorithm>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace trainyard::tidy {
namespace {

// These have no caller in production code on purpose: tests compare the bytes that live with the
// plan, and the benchmarks on a GPU repeat a step and count its nodes.
bool IsExempt(const std::string& name) {
  static const auto* names =
      new absl::flat_hash_set<std::string>{"LiveBufferBytes", "RepeatStep", "StepNodes"};
  return names->contains(name);
}

bool IsOfAName(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
}

template <typename Function>
void ForEachName(const std::string& code, const Function& function) {
  for (size_t begin = 0; begin < code.size();) {
    size_t end = begin;
    while (end < code.size() && IsOfAName(code[end])) ++end;
    if (end > begin) function(code.substr(begin, end - begin));
    begin = std::max(end, begin + 1);
  }
}

struct Declaration {
  std::string place;
  int mentions_max = 0;  // by the declaration and the definition
};

// Adds the functions and constants that a declaration in a header declares. `code` holds it up to
// its semicolon or brace.
void AddDeclarations(const std::string& code, const std::string& place,
                     absl::btree_map<std::string, Declaration>& declarations) {
  static const RE2 function(R"([\w>*&] +[*&]?([A-Z][a-z]\w*)\()");
  static const RE2 constant(R"(\bconstexpr [\w:<>, ]+ (k[A-Z]\w*)\b)");
  for (const char* no_declaration : {"override", "virtual", "return "}) {
    if (absl::StrContains(code, no_declaration)) return;
  }
  const bool is_defined_here = absl::StrContains(code, '{') || absl::StrContains(code, "inline ");
  std::string name;
  for (re2::StringPiece rest = code; RE2::FindAndConsume(&rest, function, &name);) {
    declarations.try_emplace(name, Declaration{place, is_defined_here ? 1 : 2});
  }
  if (RE2::PartialMatch(code, constant, &name)) {
    declarations.try_emplace(name, Declaration{place, 1});
  }
}

}  // namespace

std::vector<std::string> SymbolsForTestsAlone(const std::vector<SourceFile>& tree) {
  absl::flat_hash_map<std::string, int> mentions;
  absl::flat_hash_set<std::string> tested;
  absl::btree_map<std::string, Declaration> declarations;
  for (const SourceFile& file : tree) {
    const bool is_test = absl::StartsWith(file.path, "tests/");
    std::string declaration;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string code = CodeOf(file.lines[i]);
      ForEachName(code, [&](std::string name) {
        if (is_test) {
          tested.insert(std::move(name));
        } else {
          ++mentions[name];
        }
      });
      if (is_test || !absl::EndsWith(file.path, ".h")) continue;
      absl::StrAppend(&declaration, declaration.empty() ? "" : " ", code);
      if (code.find_first_of(";{}") == std::string::npos && i + 1 < file.lines.size()) continue;
      AddDeclarations(declaration, absl::StrCat(file.path, ":", i + 1), declarations);
      declaration.clear();
    }
  }
  std::vector<std::string> findings;
  for (const auto& [name, declaration] : declarations) {
    if (IsExempt(name) || !tested.contains(name)) continue;
    if (mentions[name] > declaration.mentions_max) continue;
    findings.push_back(absl::StrCat(declaration.place, ": ", name, " is used by tests alone"));
  }
  return findings;
}

}  // namespace trainyard::tidy
