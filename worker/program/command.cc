// Puts together words and texts for the shell; nothing is executed here.
#include "worker/program/command.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace trainyard::program {
namespace {

// Quotes a text for the shell.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Each line must succeed, or the program does not begin.
std::string PreparationText(const ProgramSpec& spec, const std::string& ready_path) {
  std::string text = "set -e\n";
  if (!spec.modules.empty()) {
    // `module` is a function of the shell, which the system's profile defines.
    text += "type module >/dev/null 2>&1 || . /etc/profile\n";
    for (const std::string& module : spec.modules) {
      absl::StrAppend(&text, "module load ", Quoted(module), "\n");
    }
  }
  if (!spec.conda.empty()) {
    absl::StrAppend(&text, "eval \"$(conda shell.bash hook)\"\nconda activate ", Quoted(spec.conda),
                    "\n");
  }
  if (!spec.setup.empty()) absl::StrAppend(&text, spec.setup, "\n");
  // Settings of the preparation do not reach the program.
  absl::StrAppend(&text, ": >", Quoted(ready_path), "\nexec \"$@\"\n");
  return text;
}

}  // namespace

std::string Substitute(absl::string_view word, const std::map<std::string, std::string>& params) {
  std::string result;
  while (!word.empty()) {
    const size_t open = word.find('{');
    const size_t close = open == word.npos ? word.npos : word.find('}', open);
    if (close == word.npos) break;
    const auto param = params.find(std::string(word.substr(open + 1, close - open - 1)));
    if (param == params.end()) {
      absl::StrAppend(&result, word.substr(0, open + 1));
      word.remove_prefix(open + 1);
    } else {
      absl::StrAppend(&result, word.substr(0, open), param->second);
      word.remove_prefix(close + 1);
    }
  }
  absl::StrAppend(&result, word);
  return result;
}

std::string ScriptText(const std::string& script) {
  const bool ends = absl::EndsWith(script, "\n");
  return absl::StrCat(absl::StartsWith(script, "#!") ? "" : "#!/bin/sh\n", script,
                      ends ? "" : "\n");
}

bool HasPreparation(const ProgramSpec& spec) {
  return !spec.modules.empty() || !spec.conda.empty() || !spec.setup.empty();
}

std::vector<std::string> CommandWords(const ProgramSpec& spec, const std::string& script_path,
                                      const std::string& ready_path) {
  std::vector<std::string> words;
  if (HasPreparation(spec)) {
    words = {"/bin/bash", "-c", PreparationText(spec, ready_path), "setup"};
  }
  if (!spec.script.empty()) {
    words.push_back(script_path);
  } else {
    for (const std::string& word : spec.command) words.push_back(Substitute(word, spec.params));
  }
  return words;
}

}  // namespace trainyard::program
