// Declares the grammar of the command line: verbs, groups of verbs, and their flags. It hides
// CLI11, whose headers take seconds to compile; only flags.cc includes them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trainyard::client {

// The values that shells offer for a flag, for each flag that has a list of them.
using Choices = std::map<const CLI::Option*, std::vector<std::string>>;

// A declared flag, or a declared word without a flag. The calls add rules to it.
class Flag {
 public:
  Flag(CLI::Option* option, Choices& choices) : option_(option), choices_(&choices) {}

  Flag& Required();
  // Accepts integers between these bounds, both included.
  Flag& Range(int64_t least, int64_t most);
  Flag& Positive();
  Flag& OneOf(const std::vector<std::string>& words);
  // Lets shells offer these values. Others are accepted too.
  Flag& Offers(const std::vector<std::string>& words);
  // Accepts the values for which `check` returns "". Otherwise `check` returns what is wrong.
  Flag& Check(std::function<std::string(const std::string&)> check);
  // Sets the number of words that the flag takes.
  Flag& Count(int least, int most);
  // Sets the text that --help shows in place of the type of the value.
  Flag& ShownAs(const std::string& text);
  Flag& Excludes(const Flag& other);

 private:
  CLI::Option* option_;
  Choices* choices_;
};

// A verb declares its flags through this class. Each call binds a flag to a field, which must
// outlive the command line. Parsing fills the field in, and leaves it alone if the flag is not
// given. `names` is "--all", or "-a,--all".
class Flags {
 public:
  // The words that follow `--`, for each verb that takes them.
  using Rests = std::map<const CLI::App*, std::vector<std::string>*>;

  Flags(CLI::App* verb, Rests& rests, Choices& choices)
      : verb_(verb), rests_(&rests), choices_(&choices) {}

  // Declares a word without a flag, such as FILE.
  Flag Word(const std::string& name, std::string& value, const std::string& help);
  Flag Words(const std::string& name, std::vector<std::string>& values, const std::string& help);
  // Declares a flag with a value.
  Flag Value(const std::string& names, std::string& value, const std::string& help);
  Flag Value(const std::string& names, int& value, const std::string& help);
  Flag Value(const std::string& names, int64_t& value, const std::string& help);
  Flag Value(const std::string& names, std::optional<int>& value, const std::string& help);
  // Declares a flag that may be repeated, with one value each time.
  Flag Repeated(const std::string& names, std::vector<std::string>& values,
                const std::string& help);
  // Declares a flag without a value.
  Flag Switch(const std::string& names, bool& value, const std::string& help);
  // Declares that everything after `--` goes into `values`, whatever it looks like: the words of a
  // command. `name` and `help` describe them in --help.
  void Rest(const std::string& name, std::vector<std::string>& values, const std::string& help);

 private:
  CLI::App* verb_;
  Rests* rests_;
  Choices* choices_;
};

// Describes a verb for completion.
struct VerbInfo {
  std::string name;  // such as "checkpoints get"
  std::string summary;
  std::vector<std::string> flags;  // such as "--follow"
  std::vector<std::string> words;  // the words without a flag, such as "JOB"
  // Its own flags that have a list of values, by each of their names: "-o", "--output".
  std::map<std::string, std::vector<std::string>> choices;
};

class CommandLine {
 public:
  struct Outcome {
    // Empty if no verb is to run: `exit_code` and the texts then say what happens instead.
    std::string verb;
    int exit_code = 0;
    std::string out;
    std::string err;
  };

  // Makes a command line without verbs. `footer` ends the help of the program.
  CommandLine(const std::string& program, const std::string& summary, const std::string& footer);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Declares flags of all verbs, which may stand before the verb or after it.
  Flags Globals();
  // Adds a word that stands before verbs, such as "checkpoints".
  void AddGroup(const std::string& name, const std::string& summary);
  // Adds a verb. `name` is "ls", or "checkpoints ls" if that group was added before. `example` is
  // what comes after the name in the example of the help.
  Flags AddVerb(const std::string& name, const std::string& summary, const std::string& example);

  // --version prints this text.
  void SetVersion(const std::string& text);
  // Suggests `verbs` to those who type `word`, a word of other tools: the verbs of this list that
  // exist where the word stands.
  void AddSynonym(const std::string& word, const std::vector<std::string>& verbs);

  // Parses `args`, which come without the program's name. The words of a flag may be joined by
  // underscores too, and `help VERB` is `VERB --help`.
  Outcome Parse(const std::vector<std::string>& args);
  std::vector<VerbInfo> Describe() const;
  // Describes the flags of all verbs. `flags` has those that take a value, by each of their names.
  VerbInfo DescribeGlobals() const;

 private:
  const std::string program_;
  const std::unique_ptr<CLI::App> app_;
  Flags::Rests rests_;
  Choices choices_;
  std::string chosen_;
  std::map<std::string, std::vector<std::string>> synonyms_;
};

}  // namespace trainyard::client
