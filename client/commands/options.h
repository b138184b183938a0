// What the user asked for, as the parser understood it. One flat record: each verb reads its part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::commands {

enum class Format { kTable, kWide, kJson, kJsonLines, kYaml, kName };

struct Options {
  // "submit", "checkpoints get".
  std::string verb;

  // All verbs.
  std::string server;
  Format format = Format::kTable;
  bool no_color = false;
  bool quiet = false;

  // submit, clone.
  std::string file;
  bool follow = false;  // also logs, metrics
  bool dry_run = false;
  std::vector<std::string> set;
  int devices = 0;  // 0: as the spec says
  std::string name;
  std::string request_id;
  std::string from;
  bool yes = false;

  // Jobs or workers, as the user named them.
  std::vector<std::string> selectors;

  // ls
  std::vector<std::string> states;
  int limit = 0;  // 0: 20, or all with --all
  bool all = false;
  // show
  bool spec = false;
  bool events = false;
  // logs
  int rank = -1;            // -1: all
  int64_t tail_lines = -1;  // -1: all
  // metrics
  std::vector<std::string> metrics;
  // wait
  std::string timeout;
  // cancel, suspend, workers cordon
  std::string reason;
  // checkpoints get
  std::string output_dir;
  // completion
  std::string shell;

  // up, down
  std::string state_dir;
  std::string listen;
  std::string worker_name;
  int cpu_devices = 0;         // 0: the worker decides
  int threads_per_device = 0;  // 0: the worker decides
  std::string dataset_dir;
  bool detach = false;
  bool cancel = false;
  bool force = false;
};

// A verb as help and completion show it.
struct VerbInfo {
  std::string name;  // "checkpoints get"
  std::string summary;
  std::vector<std::string> flags;  // "--follow"
};

}  // namespace trainyard::commands
