// Judges the GPUs of a machine, and what programs need to use them.
#include <charconv>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/doctor/judge.h"

namespace trainyard::doctor {
namespace {

constexpr uint32_t kEveryoneUses = 0006;
// The trainer is built with CUDA 13, which needs this driver (docs/cuda.md).
constexpr int kOldestDriver = 580;

// Returns where to get the library that the message of the loader names.
std::string AdviceFor(const std::string& error) {
  const char* package = nullptr;
  if (absl::StrContains(error, "libcudnn")) package = "cuDNN (libcudnn9-cuda-13)";
  if (absl::StrContains(error, "libnccl")) package = "NCCL (libnccl2)";
  if (absl::StrContains(error, "libcublas")) package = "cuBLAS (libcublas-13-0)";
  return absl::StrCat("Install ", package == nullptr ? "the library that is missing" : package,
                      " from NVIDIA's repository, or add its folder to /etc/ld.so.conf.d and run "
                      "`ldconfig`.");
}

Finding JudgeDriver(const GpuFacts& gpus) {
  const std::string check = "driver";
  int major = 0;
  const bool is_number =
      absl::SimpleAtoi(std::vector<std::string>(absl::StrSplit(gpus.driver, '.')).front(), &major);
  if (is_number && major < kOldestDriver) {
    return Problem(check,
                   absl::StrCat("NVIDIA's driver has the version ", gpus.driver,
                                ", which is too old for CUDA 13."),
                   absl::StrCat("Install the driver ", kOldestDriver, " or a newer one."));
  }
  if (!gpus.nvml_error.empty()) {
    return Problem(
        check,
        absl::StrCat("NVIDIA's driver ", gpus.driver,
                     " is loaded, but its management library is not found: ", gpus.nvml_error),
        "Install the libraries of the same driver (libnvidia-ml1), or name the file "
        "with the worker's flag --nvml. Without it, a worker offers no GPU.");
  }
  return Ok(check, absl::StrCat("NVIDIA's driver has the version ", gpus.driver, "."));
}

Finding JudgeDeviceFiles(const GpuFacts& gpus) {
  std::vector<std::string> closed;
  for (const FileFacts& file : gpus.devices) {
    if ((file.mode & kEveryoneUses) != kEveryoneUses) closed.push_back(file.path);
  }
  if (gpus.devices.empty()) {
    return Problem("device files", "The driver is loaded, but there is no /dev/nvidia0.",
                   "Run `nvidia-modprobe -u -c 0` as root, or give the container its devices.");
  }
  if (!closed.empty()) {
    return Warning("device files",
                   absl::StrCat("Not everybody may use ", absl::StrJoin(closed, ", "), "."),
                   "Jobs of other users fail there; 0666 is the driver's default "
                   "(NVreg_DeviceFileMode).");
  }
  return Ok("device files", "Everybody may use the GPUs.");
}

Finding JudgeTrainer(const GpuFacts& gpus) {
  const ProgramFacts& trainer = gpus.trainer;
  if (trainer.path.empty()) {
    return Problem("trainer for GPUs", "trainyard-trainer-cuda is missing, so GPUs train nothing.",
                   "Install the package trainyard-worker-cuda, and restart the worker.");
  }
  if (!trainer.error.empty()) {
    return Problem("trainer for GPUs",
                   absl::StrCat("trainyard-trainer-cuda does not start: ", trainer.error),
                   AdviceFor(trainer.error));
  }
  return Ok("trainer for GPUs", "trainyard-trainer-cuda finds cuDNN, cuBLASLt and NCCL.");
}

Findings JudgeProcesses(const GpuFacts& gpus) {
  Findings findings;
  for (const GpuProcess& process : gpus.processes) {
    if (process.is_of_trainyard) continue;
    findings.push_back(Warning(
        "processes on GPUs",
        absl::StrCat("The process ", process.pid, " (", process.program, ") uses ",
                     process.memory_mib, " MiB of ", process.gpu, ", and belongs to no job."),
        "A worker does not offer that GPU until the process has ended."));
  }
  if (findings.empty()) {
    findings.push_back(Ok("processes on GPUs", "Nobody but jobs uses the GPUs."));
  }
  return findings;
}

}  // namespace

Findings JudgeGpus(const GpuFacts& gpus) {
  if (gpus.driver.empty()) {
    if (gpus.cards.empty()) {
      return {Ok("GPUs", "This machine has no GPU of NVIDIA; jobs run on its processors.")};
    }
    return {Problem("driver",
                    absl::StrCat("This machine has GPUs of NVIDIA (",
                                 absl::StrJoin(gpus.cards, ", "), "), but no driver is loaded."),
                    "Install NVIDIA's driver and restart the machine; `dmesg | grep -i nvidia` "
                    "says why a driver that is installed was not loaded.")};
  }
  Findings findings = {JudgeDriver(gpus), JudgeDeviceFiles(gpus), JudgeTrainer(gpus)};
  if (!gpus.smi_error.empty()) {
    findings.push_back(Warning("GPUs", absl::StrCat("nvidia-smi tells nothing: ", gpus.smi_error),
                               "Install it with the driver, to see what each GPU does; `dmesg | "
                               "grep -i xid` shows errors of GPUs."));
    return findings;
  }
  if (gpus.gpus.empty()) {
    findings.push_back(Problem("GPUs", "The driver shows no GPU.",
                               "`dmesg | grep -i -e nvrm -e xid` says why; in a container, give it "
                               "the GPUs."));
    return findings;
  }
  findings.push_back(
      Ok("GPUs", absl::StrCat("The driver shows: ", absl::StrJoin(gpus.gpus, "; "), ".")));
  if (!gpus.without_persistence.empty()) {
    findings.push_back(Warning(
        "persistence mode",
        absl::StrCat("Persistence mode is off on ", absl::StrJoin(gpus.without_persistence, ", "),
                     ", so jobs start seconds later."),
        "Run `nvidia-smi -pm 1` as root, or enable nvidia-persistenced."));
  }
  Append(findings, JudgeProcesses(gpus));
  return findings;
}

}  // namespace trainyard::doctor
