// Sets the variables that torchrun sets, so that scripts for it run unchanged, and Trainyard's own.
#include "worker/program/environment.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainyard::program {
namespace {

// Returns the GPUs that the process may see: its own, or all of the job on this host if it stands
// for all ranks here. On other devices it is to see none.
std::string VisibleGpus(const ProgramSpec& spec, const run_dir::Assignment& assignment,
                        const run_dir::RankAssignment& rank) {
  std::vector<std::string> devices;
  for (const run_dir::RankAssignment& other : assignment.ranks) {
    const bool is_mine = spec.is_per_host || other.rank == rank.rank;
    const bool is_gpu = !other.device.empty() && other.device_type != "cpu";
    if (is_mine && is_gpu) devices.push_back(other.device);
  }
  return absl::StrJoin(devices, ",");
}

int Threads(const ProgramSpec& spec, const run_dir::Assignment& assignment,
            const run_dir::RankAssignment& rank) {
  if (!spec.is_per_host) return rank.threads;
  int threads = 0;
  for (const run_dir::RankAssignment& other : assignment.ranks) threads += other.threads;
  return threads;
}

std::optional<std::string> IfAny(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

}  // namespace

std::string Expanded(const std::string& path, const std::string& home) {
  if (path != "~" && !absl::StartsWith(path, "~/")) return path;
  return absl::StrCat(home, path.substr(1));
}

std::string StartFolder(const ProgramSpec& spec, const Files& files, const std::string& home) {
  if (spec.directory.empty()) return files.code.empty() ? files.work : files.code;
  const bool is_elsewhere = spec.directory[0] == '/' || spec.directory[0] == '~';
  if (is_elsewhere) return Expanded(spec.directory, home);
  return absl::StrCat(files.code, "/", spec.directory);
}

Variables ProgramVariables(const ProgramSpec& spec, const run_dir::Assignment& assignment,
                           const run_dir::RankAssignment& rank, const Place& place,
                           const Files& files, const std::string& path, const std::string& home) {
  Variables all;
  // Users follow the output while the program runs, so Python must not hold it back.
  all["PYTHONUNBUFFERED"] = "1";
  all["OMP_NUM_THREADS"] = absl::StrCat(Threads(spec, assignment, rank));
  if (!spec.venv.empty()) {
    const std::string venv = Expanded(spec.venv, home);
    all["VIRTUAL_ENV"] = venv;
    all["PATH"] = absl::StrCat(venv, "/bin:", path);
    all["PYTHONHOME"] = std::nullopt;
  }
  if (!place.interface.empty()) {
    // Left to themselves, these libraries may choose an address that other hosts do not reach. Gloo
    // takes the one to which the name of the host resolves, which is that of the loopback on
    // Debian.
    all["GLOO_SOCKET_IFNAME"] = place.interface;
    all["NCCL_SOCKET_IFNAME"] = absl::StrCat("=", place.interface);
  }
  for (const auto& [name, value] : spec.env) all[name] = value;
  // The user's own settings do not move a rank to another place or to other devices.
  all["CUDA_VISIBLE_DEVICES"] = VisibleGpus(spec, assignment, rank);
  all["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  all["RANK"] = absl::StrCat(place.rank);
  all["WORLD_SIZE"] = absl::StrCat(place.world_size);
  all["LOCAL_RANK"] = absl::StrCat(place.local_rank);
  all["LOCAL_WORLD_SIZE"] = absl::StrCat(place.local_world_size);
  all["NODE_RANK"] = absl::StrCat(place.node_rank);
  all["GROUP_RANK"] = absl::StrCat(place.node_rank);
  all["NNODES"] = absl::StrCat(place.nodes);
  all["MASTER_ADDR"] = place.master_address;
  all["MASTER_PORT"] = absl::StrCat(place.master_port);
  all["TRAINYARD_JOB"] = absl::StrCat("jobs/", assignment.job);
  all["TRAINYARD_ATTEMPT"] = absl::StrCat(assignment.attempt);
  all["TRAINYARD_RANK"] = absl::StrCat(rank.rank);
  all["TRAINYARD_RUN_DIR"] = files.folder;
  all["TRAINYARD_PARAMS"] = files.params;
  all["TRAINYARD_CHECKPOINT_DIR"] = files.checkpoints;
  all["TRAINYARD_RESUME_FROM"] = IfAny(files.resume_from);
  all["TRAINYARD_DATA"] = IfAny(files.data);
  all["TRAINYARD_SECRETS"] = IfAny(files.secrets);
  all["TRAINYARD_CODE"] = IfAny(files.code);
  return all;
}

}  // namespace trainyard::program
