// Declares the words of trainyard-server that work on a state directory and end: backup, fetch,
// restore and check.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace trainyard {

struct BucketFlags;

// Adds the words to a command line. After it was parsed, `task` is set if one of them was given; it
// returns the exit code. `state_dir` is the value of --state_dir, and `bucket` are the flags of the
// server's own bucket, whose store the words use if nothing else is said. Both outlive `app`.
//
// Root does all of this as the owner of the state directory, so that no file of it ever belongs to
// somebody whom the server cannot do without.
void AddMaintenance(CLI::App& app, const std::string& state_dir, const BucketFlags& bucket,
                    std::function<int()>& task);

}  // namespace trainyard
