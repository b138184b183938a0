// Puts the words of bubblewrap together. Later ones cover what earlier ones have mounted.
#include "worker/program/sandbox.h"

#include "absl/strings/match.h"
#include "worker/program/become.h"

namespace trainyard::program {
namespace {

using Words = std::vector<std::string>;

void Add(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Returns true for a folder that may be handed out as a whole: not the root, nor a part of the
// system.
bool IsOwnFolder(const std::string& path) {
  for (const char* folder :
       {"/", "/usr", "/etc", "/bin", "/lib", "/dev", "/proc", "/sys", "/var"}) {
    if (path == folder) return false;
  }
  return absl::StartsWith(path, "/");
}

// Returns the folders of homes: /home, and the one above the owner's home if its name says so.
// Other folders may hold what programs need.
Words FoldersOfHomes(const std::string& home) {
  Words folders = {"/home"};
  const std::string above = home.substr(0, home.rfind('/'));
  for (const char* name : {"/home", "/homes", "/users"}) {
    if (above != "/home" && absl::EndsWith(above, name)) folders.push_back(above);
  }
  return folders;
}

}  // namespace

std::vector<std::string> SandboxWords(const std::string& bubblewrap, const std::string& self,
                                      const std::string& mark, const Mounts& mounts,
                                      const std::vector<std::string>& command) {
  // Signals are for the program, and bubblewrap stays until it has ended.
  Words words = {self, kShieldFlag, bubblewrap, "--die-with-parent", "--ro-bind", "/", "/"};
  Add(words, {"--dev", "/dev", "--proc", "/proc"});
  if (mounts.is_alone) {
    Add(words, {"--unshare-pid", "--unshare-ipc"});
  } else {
    Add(words, {"--bind", "/dev/shm", "/dev/shm"});
  }
  for (const std::string& node : mounts.gpus) Add(words, {"--dev-bind", node, node});
  if (!mounts.gpus.empty()) {
    for (const char* node : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                             "/dev/nvidia-caps", "/dev/infiniband"}) {
      Add(words, {"--dev-bind-try", node, node});
    }
  }
  // The homes of others are covered too.
  for (const char* folder : {"/tmp", "/var/tmp"}) Add(words, {"--tmpfs", folder});
  for (const std::string& folder : FoldersOfHomes(mounts.home)) Add(words, {"--tmpfs", folder});
  for (const std::string& path : mounts.read) Add(words, {"--ro-bind-try", path, path});
  if (IsOwnFolder(mounts.home)) Add(words, {"--bind-try", mounts.home, mounts.home});
  for (const std::string& path : mounts.write) Add(words, {"--bind", path, path});
  if (IsOwnFolder(mounts.start)) Add(words, {"--bind", mounts.start, mounts.start});
  Add(words, {"--ro-bind", self, self, "--chdir", mounts.start, "--", self, kInsideFlag, mark});
  Add(words, command);
  return words;
}

}  // namespace trainyard::program
