// completion prints a script with which a shell completes verbs and flags. The words come from the
// grammar of the command line itself, so the script cannot miss any.
#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/commands/verbs.h"

namespace trainyard::commands {
namespace {

struct CompletionOptions {
  std::string shell;
};

// Prints the names of contexts, which a shell asks for when one is to be completed.
constexpr char kContextNames[] = "trainyard contexts ls -o name 2>/dev/null";

// Collects the first words, and the second words of groups such as `checkpoints`.
struct Words {
  std::vector<std::string> first;
  std::map<std::string, std::vector<std::string>> second;
};

Words SplitVerbs(const std::vector<client::VerbInfo>& verbs) {
  Words words;
  for (const client::VerbInfo& verb : verbs) {
    const std::vector<std::string> parts = absl::StrSplit(verb.name, ' ');
    if (std::find(words.first.begin(), words.first.end(), parts[0]) == words.first.end()) {
      words.first.push_back(parts[0]);
    }
    if (parts.size() > 1) words.second[parts[0]].push_back(parts[1]);
  }
  return words;
}

std::string BashCompletion(const std::vector<client::VerbInfo>& verbs) {
  const Words words = SplitVerbs(verbs);
  std::string out =
      "# bash completion of trainyard\n"
      "_trainyard() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} verb= word i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    case $word in -*) ;; *) verb=${verb:+$verb }$word ;; esac\n"
      "  done\n"
      "  case ${COMP_WORDS[COMP_CWORD-1]}:$verb in\n";
  absl::StrAppend(&out, "    --context:*|use:'contexts use'|rm:'contexts rm')\n",
                  "      COMPREPLY=($(compgen -W \"$(", kContextNames,
                  ")\" -- \"$current\"))\n      return ;;\n  esac\n  case $verb in\n");
  absl::StrAppend(&out, "    '') COMPREPLY=($(compgen -W '", absl::StrJoin(words.first, " "),
                  "' -- \"$current\")) ;;\n");
  for (const auto& [first, second] : words.second) {
    absl::StrAppend(&out, "    ", first, ") COMPREPLY=($(compgen -W '", absl::StrJoin(second, " "),
                    "' -- \"$current\")) ;;\n");
  }
  for (const client::VerbInfo& verb : verbs) {
    absl::StrAppend(&out, "    '", verb.name, "'*) COMPREPLY=($(compgen -W '",
                    absl::StrJoin(verb.flags, " "), "' -- \"$current\")) ;;\n");
  }
  absl::StrAppend(&out,
                  "  esac\n"
                  "  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$current\"))\n"
                  "}\n"
                  "complete -o filenames -F _trainyard trainyard\n");
  return out;
}

// Returns the text in single quotes that a shell understands.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string ZshCompletion(const std::vector<client::VerbInfo>& verbs) {
  const Words words = SplitVerbs(verbs);
  std::string out =
      "#compdef trainyard\n"
      "_trainyard() {\n"
      "  local verb= word i\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    word=${words[i]}\n"
      "    [[ $word == -* ]] || verb=${verb:+$verb }$word\n"
      "  done\n"
      "  case ${words[CURRENT-1]}:$verb in\n";
  absl::StrAppend(&out, "    --context:*|use:'contexts use'|rm:'contexts rm')\n",
                  "      compadd -- $(", kContextNames, ")\n      return ;;\n  esac\n",
                  "  case $verb in\n");
  absl::StrAppend(&out, "    '') compadd -- ", absl::StrJoin(words.first, " "), " ;;\n");
  for (const auto& [first, second] : words.second) {
    absl::StrAppend(&out, "    ", first, ") compadd -- ", absl::StrJoin(second, " "), " ;;\n");
  }
  for (const client::VerbInfo& verb : verbs) {
    absl::StrAppend(&out, "    ", Quoted(verb.name), "*) compadd -- ",
                    absl::StrJoin(verb.flags, " "), "; _files ;;\n");
  }
  absl::StrAppend(&out, "  esac\n}\n_trainyard \"$@\"\n");
  return out;
}

std::string FishCompletion(const std::vector<client::VerbInfo>& verbs) {
  const Words words = SplitVerbs(verbs);
  std::string out = "# fish completion of trainyard\n";
  std::map<std::string, std::string> summaries;
  for (const client::VerbInfo& verb : verbs) summaries[verb.name] = verb.summary;
  for (const std::string& first : words.first) {
    absl::StrAppend(&out, "complete -c trainyard -n __fish_use_subcommand -a ", first);
    if (summaries.count(first) > 0) absl::StrAppend(&out, " -d ", Quoted(summaries[first]));
    absl::StrAppend(&out, "\n");
  }
  for (const auto& [first, second] : words.second) {
    for (const std::string& word : second) {
      absl::StrAppend(&out, "complete -c trainyard -n '__fish_seen_subcommand_from ", first,
                      "' -a ", word, " -d ", Quoted(summaries[absl::StrCat(first, " ", word)]),
                      "\n");
    }
  }
  for (const client::VerbInfo& verb : verbs) {
    const std::vector<std::string> parts = absl::StrSplit(verb.name, ' ');
    for (const std::string& flag : verb.flags) {
      absl::StrAppend(&out, "complete -c trainyard -n '__fish_seen_subcommand_from ", parts.back(),
                      "' -l ", flag.substr(2), "\n");
    }
  }
  for (const char* place : {"-n '__fish_seen_subcommand_from contexts; and "
                            "__fish_seen_subcommand_from use rm'",
                            "-l context -x"}) {
    absl::StrAppend(&out, "complete -c trainyard ", place, " -a '(", kContextNames, ")'\n");
  }
  return out;
}

Result Completion(const Context& context, const CompletionOptions& options) {
  const std::string& shell = options.shell;
  const std::vector<client::VerbInfo> verbs = DescribeVerbs();
  context.out << (shell == "bash"  ? BashCompletion(verbs)
                  : shell == "zsh" ? ZshCompletion(verbs)
                                   : FishCompletion(verbs));
  return link::kOk;
}

}  // namespace

void AddCompletion(VerbTable& verbs) {
  verbs.Add<CompletionOptions>(
      "completion", "Print a completion script for a shell",
      "bash > ~/.local/share/bash-completion/completions/trainyard",
      [](client::Flags& flags, CompletionOptions& options) {
        flags.Word("SHELL", options.shell, "bash, zsh or fish")
            .Required()
            .OneOf({"bash", "zsh", "fish"});
      },
      Completion);
}

}  // namespace trainyard::commands
