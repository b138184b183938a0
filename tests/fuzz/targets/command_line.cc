// Parses the command lines of the client, the server and the worker, without running anything.
#include <iostream>
#include <streambuf>
#include <string>
#include <vector>

#include "client/commands/verbs.h"
#include "common/base/check.h"
#include "server/flags.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "worker/agent/worker_flags.h"

namespace trainyard::fuzz::command_line {
namespace {

constexpr size_t kArgumentsMax = 64;

// Drops what is printed.
class Nowhere : public std::streambuf {
 protected:
  int_type overflow(int_type c) override { return traits_type::not_eof(c); }
};

class Silence {
 public:
  Silence() : out_(std::cout.rdbuf(&nowhere_)), err_(std::cerr.rdbuf(&nowhere_)) {}
  ~Silence() {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(err_);
  }

 private:
  Nowhere nowhere_;
  std::streambuf* const out_;
  std::streambuf* const err_;
};

void ParseDaemon(bool is_server, std::vector<std::string> arguments) {
  std::vector<char*> argv;
  std::string program = is_server ? "trainyard-server" : "trainyard-worker";
  argv.push_back(program.data());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int argc = static_cast<int>(argv.size()) - 1;
  const Silence silence;
  if (is_server) {
    const ParsedFlags flags = ParseFlags(argc, argv.data(), "/state");
    TY_CHECK(flags.exit_code.has_value() || !flags.options.state_dir.empty() || argc > 1);
  } else {
    agent::WorkerFlags flags;
    (void)agent::ReadWorkerFlags(argc, argv.data(), flags);
  }
}

// The first byte chooses the program; the rest are its arguments, a line each.
void Run(absl::string_view bytes) {
  Input input(bytes);
  const size_t program = input.Below(3);
  std::vector<std::string> arguments;
  while (!input.empty() && arguments.size() < kArgumentsMax) {
    // An argument ends at its first zero byte.
    const absl::string_view line = input.Until('\n');
    arguments.emplace_back(line.substr(0, line.find('\0')));
  }
  if (program > 0) return ParseDaemon(program == 1, std::move(arguments));
  const commands::Parsed parsed = commands::ParseCommandLine(arguments);
  TY_CHECK(parsed.invocation.has_value() || !parsed.out.empty() || !parsed.err.empty());
}

// The verbs and flags of all programs are declared anew for each command line.
const Registration kTarget({.name = "command_line", .run = Run, .is_slow = true});

}  // namespace
}  // namespace trainyard::fuzz::command_line
