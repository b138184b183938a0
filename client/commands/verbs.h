// The table of all verbs. Each file of a verb adds its own to it: its name, its help, its flags
// with the record of options that they fill in, and the function that runs it. verbs.def lists the
// files.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/commands/context.h"
#include "client/flags.h"

namespace trainyard::commands {

using RunFunction = std::function<Result(const Context&)>;

// Collects the verbs. It borrows the command line.
class VerbTable {
 public:
  explicit VerbTable(client::CommandLine& line) : line_(line) {}

  // Adds a word that stands before verbs, such as "checkpoints".
  void Group(const std::string& name, const std::string& summary) { line_.AddGroup(name, summary); }

  // Adds a verb. `declare(flags, options)` declares its flags over a new `Options`; `run(context,
  // options)` runs it once they are filled in.
  template <typename Options, typename Declare, typename Run>
  void Add(const std::string& name, const std::string& summary, const std::string& example,
           Declare declare, Run run) {
    auto options = std::make_shared<Options>();
    client::Flags flags = line_.AddVerb(name, summary, example);
    declare(flags, *options);
    runs_[name] = [options = std::move(options), run](const Context& context) {
      return run(context, *options);
    };
  }
  // Adds a verb without flags of its own.
  void Add(const std::string& name, const std::string& summary, const std::string& example,
           RunFunction run) {
    line_.AddVerb(name, summary, example);
    runs_[name] = std::move(run);
  }

  const RunFunction& Find(const std::string& name) const { return runs_.at(name); }

 private:
  client::CommandLine& line_;
  std::map<std::string, RunFunction> runs_;
};

// A command line that was understood.
struct Invocation {
  GlobalOptions options;
  RunFunction run;
};

struct Parsed {
  // Unset if there is nothing to run: `exit_code` and the texts then say what happens instead.
  std::optional<Invocation> invocation;
  int exit_code = 0;
  std::string out;
  std::string err;
};

// Parses `args`, which come without the program's name.
Parsed ParseCommandLine(const std::vector<std::string>& args);

// Runs the verb, prints its error if there is one, and returns the exit code.
link::ExitCode Run(const Context& context, const RunFunction& run);

// Returns every verb with its flags, for completion.
std::vector<client::VerbInfo> DescribeVerbs();
// Returns the flags of all verbs that take a value.
client::VerbInfo DescribeGlobals();

}  // namespace trainyard::commands
