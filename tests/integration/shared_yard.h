// A yard whose server is there for all users of its host, and some of those users.
#pragma once

#include <string>
#include <vector>

#include "tests/integration/yard.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {

// Users other than the one that runs the server. The second one has no name.
inline constexpr int kNobody = 65534;
inline constexpr int kNameless = 1'234'567;

class SharedYard {
 public:
  SharedYard();

  // Returns why this machine cannot run such a test, or "".
  std::string WhyNot();
  // Starts the server.
  void Start();

  // Runs `trainyard ARGS` as a user of this host.
  ProcessResult As(int uid, std::vector<std::string> args);

  Yard& yard() { return yard_; }
  // A folder that all users can read.
  TempDir& open_dir() { return open_dir_; }
  // Returns the socket's path, and its address for clients.
  std::string path() const { return open_dir_.File("trainyard.sock"); }
  std::string address() const { return "unix:" + path(); }

 private:
  TempDir open_dir_;
  TempDir scratch_;
  Yard yard_;
};

}  // namespace trainyard::testing
