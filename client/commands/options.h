// What the user asked for, as the parser understood it. One flat record: each verb reads its part.
#pragma once

#include <cstdint>
#include <optional>
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

  // submit, clone, explain.
  std::vector<std::string> files;
  bool follow = false;  // also logs, metrics
  bool dry_run = false;
  std::vector<std::string> set;
  int devices = 0;  // 0: as the spec says
  std::string name;
  std::string request_id;
  std::string from;
  bool yes = false;
  std::string project;  // also ls
  std::optional<int> priority;
  std::string elastic;  // "2-8"
  std::string array;    // "100%8"; cancel, ls: a job of the array
  std::vector<std::string> after;
  std::vector<std::string> after_ok;
  std::string begin;
  std::string reservation;

  // Jobs or workers, as the user named them.
  std::vector<std::string> selectors;

  // ls
  std::vector<std::string> states;
  int limit = 0;  // 0: 20, or all with --all
  bool all = false;
  std::string user;
  bool expand = false;
  // plan
  bool dot = false;
  bool layers = false;
  bool json = false;
  int64_t batch = 0;  // 0: as the spec says
  std::string backend = "cpu";
  int threads = 1;
  std::vector<std::string> without;
  // show
  bool spec = false;
  bool events = false;
  // logs
  int rank = -1;            // -1: all
  int64_t tail_lines = -1;  // -1: all
  // metrics
  std::vector<std::string> metrics;
  // trace; bench scaling: output_file
  int attempt = 0;  // 0: the newest
  std::string output_file;
  // bench scaling; output_file: a file that ends in .json, or a folder
  std::string source;         // a job, or a file
  std::string device_counts;  // "1,2,4"
  int64_t steps = 0;          // 0: chosen
  int runs = 1;
  std::string svg_file;
  // wait
  std::string timeout;
  // cancel, suspend, workers cordon
  std::string reason;
  bool all_queued = false;
  // drain
  std::string within;
  // top
  bool once = false;
  // quotas set; -1: as it was
  int quota_devices = -1;
  int queued_jobs = -1;
  int submits_per_minute = -1;
  int weight = -1;
  std::string storage;
  // reservations create
  std::vector<std::string> subjects;
  std::vector<std::string> device_names;
  std::string device_type;
  std::string start;
  std::string end;
  // checkpoints get
  std::string output_dir;
  // data fetch
  std::string mirror;
  // completion
  std::string shell;

  // up, down; data: dataset_dir
  std::string state_dir;
  std::string listen;
  std::string worker_name;
  std::string cpu_devices;  // empty: the worker decides
  bool share_cpus = false;
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
