// completion prints a script with which a shell completes verbs, flags, jobs, workers and specs.
// The words come from the grammar of the command line itself, so the script cannot miss any.
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

// Asks the server for what can stand in place of a word. A server that does not answer must not
// hold the shell up, and nothing is said about it.
constexpr char kAsk[] =
    "_trainyard_ask() { timeout 2 trainyard \"$@\" -q -o name 2>/dev/null; }\n"
    "_trainyard_jobs() {\n"
    "  _trainyard_ask ls --limit 100 | sed 's|^jobs/||'\n"
    "  timeout 2 trainyard ls --limit 100 -q --columns name 2>/dev/null | sed 1d | sort -u\n"
    "}\n"
    "_trainyard_workers() { _trainyard_ask workers ls | sed 's|^workers/||'; }\n"
    "_trainyard_sweeps() { _trainyard_ask sweep ls | sed 's|^sweeps/||'; }\n";

// Returns the function of kAsk that lists what may stand in place of the verb's words, or an empty
// text for words such as files.
std::string AskFunction(const client::VerbInfo& verb) {
  for (const std::string& word : verb.words) {
    if (word == "JOB" || word == "A" || word == "JOB|FILE" || word == "CHECKPOINT") {
      return "_trainyard_jobs";
    }
    if (word == "WORKER") return "_trainyard_workers";
    if (word == "SWEEP") return "_trainyard_sweeps";
  }
  return "";
}

// Returns true if the verb reads specs.
bool TakesSpecs(const client::VerbInfo& verb) {
  return verb.name == "submit" || verb.name == "run" || verb.name == "plan" ||
         verb.name == "explain" || verb.name == "bench scaling" || verb.name == "sweep run";
}

std::string BashCompletion(const std::vector<client::VerbInfo>& verbs) {
  const Words words = SplitVerbs(verbs);
  std::string out = absl::StrCat("# bash completion of trainyard\n", kAsk);
  out +=
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
    const std::string ask = AskFunction(verb);
    absl::StrAppend(&out, "    '", verb.name, "'|'", verb.name, " '*) case $current in\n      -*) ",
                    "COMPREPLY=($(compgen -W '", absl::StrJoin(verb.flags, " "),
                    "' -- \"$current\")) ;;\n");
    if (TakesSpecs(verb)) {
      absl::StrAppend(&out, "      *) COMPREPLY=($(compgen -f -X '!*.@(yaml|yml|json)' -- ",
                      "\"$current\") $(compgen -d -S / -- \"$current\")) ;;&\n");
    }
    if (!ask.empty()) {
      absl::StrAppend(&out, "      *) COMPREPLY+=($(compgen -W \"$(", ask,
                      ")\" -- \"$current\")) ;;\n");
    }
    absl::StrAppend(&out, "    esac ;;\n");
  }
  absl::StrAppend(&out,
                  "  esac\n"
                  "  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- \"$current\"))\n"
                  "}\n"
                  "shopt -s extglob\n"
                  "complete -o filenames -F _trainyard trainyard\n");
  return out;
}

// Returns the text in single quotes that a shell understands.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string ZshCompletion(const std::vector<client::VerbInfo>& verbs) {
  const Words words = SplitVerbs(verbs);
  std::string out = absl::StrCat("#compdef trainyard\n", kAsk);
  out +=
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
    const std::string ask = AskFunction(verb);
    absl::StrAppend(&out, "    ", Quoted(verb.name), "|", Quoted(verb.name + " "), "*) compadd -- ",
                    absl::StrJoin(verb.flags, " "), "; ",
                    ask.empty() ? "" : absl::StrCat("compadd -- ${(f)\"$(", ask, ")\"}; "),
                    TakesSpecs(verb) ? "_files -g '*.(yaml|yml|json)(-.)'"
                    : ask.empty()    ? "_files"
                                     : ":",
                    " ;;\n");
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
    const std::string ask = AskFunction(verb);
    if (!ask.empty()) {
      // fish has another syntax for functions, so the commands stand here by themselves. A sweep
      // and a job may be named after the same word, so the group is asked for too.
      const bool is_sweep = ask == "_trainyard_sweeps";
      absl::StrAppend(&out, "complete -c trainyard -n '",
                      is_sweep ? "__fish_seen_subcommand_from sweep; and " : "",
                      "__fish_seen_subcommand_from ", parts.back(), "' -a '(timeout 2 trainyard ",
                      ask == "_trainyard_jobs" ? "ls --limit 100"
                      : is_sweep               ? "sweep ls"
                                               : "workers ls",
                      " -q -o name 2>/dev/null | string replace -r \"^(jobs|workers|sweeps)/\" "
                      "\"\")'\n");
    }
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
