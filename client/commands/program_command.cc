// The spec goes through its text, so that mistakes are shown in the form that a file would have.
#include "client/commands/program_command.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/link/ssh_address.h"
#include "client/output/proto_text.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

constexpr size_t kNameMax = 63;

// Returns the last part of a path in the letters that a job's name may have.
std::string NameOf(absl::string_view path) {
  std::string name = std::filesystem::path(std::string(path)).filename();
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  }
  const auto first = std::find_if(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  });
  name.erase(name.begin(), first);
  return name.substr(0, kNameMax);
}

// Names the job after the script that it runs, since most commands begin with an interpreter.
std::string NameOf(const std::vector<std::string>& words) {
  const auto script = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return absl::EndsWith(word, ".py") || absl::EndsWith(word, ".sh");
  });
  const std::string name = NameOf(script == words.end() ? words.front() : *script);
  return name.empty() ? "program" : name;
}

// Returns the path of `here` relative to the folder of the code, or an empty text if it is not
// below that.
std::string FolderBelow(const std::filesystem::path& here, const std::string& code) {
  std::error_code failed;
  const std::filesystem::path top = std::filesystem::canonical(code, failed);
  if (failed) return "";  // the message about the folder comes later
  const std::string relative = here.lexically_relative(top).string();
  const bool is_below = relative != "." && !absl::StartsWith(relative, "..");
  return is_below ? relative : "";
}

bool HasSpecEnding(absl::string_view word) {
  return word == "-" || absl::EndsWith(word, ".yaml") || absl::EndsWith(word, ".yml") ||
         absl::EndsWith(word, ".json");
}

bool IsScript(const std::string& word) {
  if (absl::EndsWith(word, ".py") || absl::EndsWith(word, ".sh")) return true;
  const auto begin = ReadRegularFileRange(word, 0, 2);
  return begin.ok() && *begin == "#!";
}

bool IsInterpreter(const std::string& word) {
  const std::string name = std::filesystem::path(word).filename();
  for (const char* known : {"bash", "sh", "torchrun", "accelerate", "deepspeed", "mpirun", "uv"}) {
    if (name == known) return true;
  }
  return absl::StartsWith(name, "python") &&
         name.find_first_not_of("0123456789.", sizeof("python") - 1) == std::string::npos;
}

// Returns true if the next word is the value of this one, which is a flag.
bool TakesNextWord(const std::string& word) {
  for (const char* alone : {"--follow", "--dry-run", "--quiet", "-q", "-f", "--file"}) {
    if (word == alone) return false;
  }
  return absl::StartsWith(word, "-") && !absl::StrContains(word, '=');
}

// Returns the word as a shell would need it to be written.
std::string WordForShell(const std::string& word) {
  const bool is_plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-_./=:,@%+", c);
  });
  return is_plain ? word : link::ShellWord(word);
}

}  // namespace

std::string ProgramAdvice(absl::string_view verb, const std::vector<std::string>& words,
                          size_t command) {
  std::string text = absl::StrCat("to run a program, write `trainyard ", verb);
  for (size_t i = 0; i < words.size(); ++i) {
    if (i == command) absl::StrAppend(&text, " --");
    if (i == command && absl::EndsWith(words[i], ".py")) absl::StrAppend(&text, " python3");
    if (i == command && absl::EndsWith(words[i], ".sh")) absl::StrAppend(&text, " bash");
    absl::StrAppend(&text, " ", WordForShell(words[i]));
  }
  return absl::StrCat(text, "`");
}

std::string ProgramAdvice(absl::string_view verb, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (HasSpecEnding(words[i])) return "";
    if (i > 0 && TakesNextWord(words[i - 1])) continue;
    const bool is_command = IsScript(words[i]) || (IsInterpreter(words[i]) && i + 1 < words.size());
    if (is_command) return ProgramAdvice(verb, words, i);
  }
  return "";
}

absl::StatusOr<spec_loader::SpecText> SpecOfCommand(const Context& context,
                                                    const std::vector<std::string>& words,
                                                    const std::vector<std::string>& variables,
                                                    const std::string& code) {
  v1::JobSpec spec;
  spec.set_name(NameOf(words));
  v1::ProgramSpec& program = *spec.mutable_program();
  program.mutable_command()->Add(words.begin(), words.end());
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (error) return ErrnoStatus(error.value(), "cannot find", "the present folder");
  program.set_directory(code.empty() ? here.string() : FolderBelow(here, code));
  if (const auto venv = VariableOf(context.surroundings, "VIRTUAL_ENV");
      venv.has_value() && !venv->empty()) {
    program.mutable_environment()->set_venv(*venv);
  } else if (const auto conda = VariableOf(context.surroundings, "CONDA_PREFIX");
             conda.has_value() && !conda->empty()) {
    program.mutable_environment()->set_conda(*conda);
  }
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) {
      value = variable.substr(equals + 1);
    } else {
      value = VariableOf(context.surroundings, name);
    }
    if (!value.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--env ", name, ": there is no such variable here; write --env ", name, "=VALUE"));
    }
    (*program.mutable_env())[name] = *std::move(value);
  }
  return spec_loader::SpecText{"the command", output::SpecYaml(spec), 0};
}

}  // namespace trainyard::commands
