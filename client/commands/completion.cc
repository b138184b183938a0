// completion prints a script with which a shell completes verbs, flags, jobs, workers and specs.
// The words come from the grammar of the command line itself, so the script cannot miss any.
#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include "absl/strings/match.h"
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
    "_trainyard_specs() { _trainyard_ask specs ls | sed 's|@.*||'; }\n"
    "_trainyard_sweeps() { _trainyard_ask sweep ls | sed 's|^sweeps/||'; }\n";

// Returns the function of kAsk that lists what may stand in place of the verb's words, or an empty
// text for words such as files.
std::string AskFunction(const client::VerbInfo& verb) {
  for (const char* name : {"specs show", "specs history", "specs diff", "specs rm"}) {
    if (verb.name == name) return "_trainyard_specs";
  }
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

// Returns the patterns of the flag and the verb whose value is completed, for a `case` over
// "flag:verb". A verb has words behind it when it has some already.
std::string ValuePatterns(const std::string& flag, const std::string& verb) {
  if (verb.empty()) return absl::StrCat("'", flag, ":'*");
  return absl::StrCat("'", flag, ":", verb, "'|'", flag, ":", verb, " '*");
}

// Returns the branches of that `case`, with a command that offers words: "compadd -- ", "".
std::string ValueBranches(const std::vector<client::VerbInfo>& verbs, absl::string_view before,
                          absl::string_view behind) {
  std::string out;
  const auto add = [&](const client::VerbInfo& info) {
    for (const auto& [flag, values] : info.choices) {
      absl::StrAppend(&out, "    ", ValuePatterns(flag, info.name), ") ", before,
                      absl::StrJoin(values, " "), behind, "; return ;;\n");
    }
  };
  for (const client::VerbInfo& verb : verbs) add(verb);
  add(DescribeGlobals());
  return out;
}

std::string BashCompletion(const std::vector<client::VerbInfo>& verbs) {
  const Words words = SplitVerbs(verbs);
  std::string out = absl::StrCat("# bash completion of trainyard\n", kAsk);
  out +=
      "_trainyard() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} verb= word i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    case $word in\n";
  // bash takes the signs = and : for words of their own.
  absl::StrAppend(&out, "      ", absl::StrJoin(DescribeGlobals().flags, "|"),
                  ") i=$((i + 1)); [ \"${COMP_WORDS[i]}\" != = ] || i=$((i + 1))\n"
                  "        while [ \"${COMP_WORDS[i+1]}\" = : ]; do i=$((i + 2)); done ;;\n"
                  "      -*) ;;\n"
                  "      *) verb=${verb:+$verb }$word ;;\n"
                  "    esac\n"
                  "  done\n"
                  "  word=${COMP_WORDS[COMP_CWORD-1]}\n"
                  "  [ \"$current\" != = ] || current=\n"
                  "  [ \"$word\" != = ] || word=${COMP_WORDS[COMP_CWORD-2]}\n"
                  "  case $word:$verb in\n",
                  ValueBranches(verbs, "COMPREPLY=($(compgen -W '", "' -- \"$current\"))"));
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
                      "\"$current\") $(compgen -d -S / -- \"$current\")) ;;&\n",
                      "      *) COMPREPLY+=($(compgen -W \"$(_trainyard_specs)\" -- ",
                      "\"$current\")) ;;", ask.empty() ? "" : "&", "\n");
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
      "    case $word in\n";
  absl::StrAppend(&out, "      ", absl::StrJoin(DescribeGlobals().flags, "|"), ") ((i++)) ;;\n",
                  "      -*) ;;\n"
                  "      *) verb=${verb:+$verb }$word ;;\n"
                  "    esac\n"
                  "  done\n"
                  "  case ${words[CURRENT-1]}:$verb in\n",
                  ValueBranches(verbs, "compadd -- ", ""));
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
                    TakesSpecs(verb) ? "compadd -- ${(f)\"$(_trainyard_specs)\"}; "
                                       "_files -g '*.(yaml|yml|json)(-.)'"
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
    // fish has another syntax for functions, so the commands stand here by themselves. A sweep, a
    // spec and a job may be named after the same word, so the group is asked for too.
    const std::string place = absl::StrCat(
        parts.size() > 1 ? absl::StrCat("__fish_seen_subcommand_from ", parts[0], "; and ") : "",
        "__fish_seen_subcommand_from ", parts.back());
    const auto offer = [&](absl::string_view question) {
      absl::StrAppend(&out, "complete -c trainyard -n '", place, "' -a '(timeout 2 trainyard ",
                      question,
                      " -q -o name 2>/dev/null | string replace -r \"^(jobs|workers|sweeps)/|@.*\" "
                      "\"\")'\n");
    };
    if (ask == "_trainyard_jobs") offer("ls --limit 100");
    if (ask == "_trainyard_sweeps") offer("sweep ls");
    if (ask == "_trainyard_workers") offer("workers ls");
    if (ask == "_trainyard_specs" || TakesSpecs(verb)) offer("specs ls");
    for (const auto& [flag, values] : verb.choices) {
      if (!absl::StartsWith(flag, "--")) continue;
      absl::StrAppend(&out, "complete -c trainyard -n '", place, "' -l ", flag.substr(2),
                      " -x -a '", absl::StrJoin(values, " "), "'\n");
    }
    for (const std::string& flag : verb.flags) {
      if (verb.choices.contains(flag)) continue;
      absl::StrAppend(&out, "complete -c trainyard -n '__fish_seen_subcommand_from ", parts.back(),
                      "' -l ", flag.substr(2), "\n");
    }
  }
  for (const auto& [flag, values] : DescribeGlobals().choices) {
    const bool is_short = !absl::StartsWith(flag, "--");
    absl::StrAppend(&out, "complete -c trainyard ", is_short ? "-s " : "-l ",
                    flag.substr(is_short ? 1 : 2), " -x -a '", absl::StrJoin(values, " "), "'\n");
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
