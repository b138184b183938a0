// Asks the kernel, the driver and nvidia-smi about GPUs. None of them changes anything on a GPU.
#include <dlfcn.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/doctor/gather.h"
#include "common/base/container_runtime.h"
#include "common/base/files.h"
#include "common/base/strings.h"

namespace trainyard::doctor {
namespace {

constexpr int64_t kKernelTextMax = 1 << 16;
constexpr size_t kSmiErrorMax = 300;
// A process has seldom this many processes above it.
constexpr int kAncestorsMax = 64;
constexpr char kVendor[] = "0x10de";
// The classes of controllers of displays and of 3D begin so.
constexpr char kDisplayClass[] = "0x03";

std::string ReadText(const std::string& path) {
  const auto text = ReadFileRange(path, 0, kKernelTextMax);
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

std::vector<std::string> CardsOnBus(const std::string& root) {
  std::vector<std::string> cards;
  const std::string bus = absl::StrCat(root, "/sys/bus/pci/devices");
  for (const std::string& address : ListDirectory(bus).value_or(std::vector<std::string>())) {
    const std::string device = JoinPath(bus, address);
    if (ReadText(JoinPath(device, "vendor")) == kVendor &&
        absl::StartsWith(ReadText(JoinPath(device, "class")), kDisplayClass)) {
      cards.push_back(address);
    }
  }
  return cards;
}

// Returns "580.65.06" from "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06
// ...", or an empty text if no driver is loaded.
std::string DriverVersion(const std::string& root) {
  const std::string text = ReadText(absl::StrCat(root, "/proc/driver/nvidia/version"));
  const absl::string_view line = absl::string_view(text).substr(0, text.find('\n'));
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(word, '.');
    int number = 0;
    if (parts.size() >= 2 && absl::SimpleAtoi(parts[0], &number)) return std::string(word);
  }
  return text.empty() ? "" : "unknown";
}

std::vector<FileFacts> DeviceFiles(const std::string& root) {
  std::vector<FileFacts> files;
  const std::string folder = absl::StrCat(root, "/dev");
  for (const std::string& name : ListDirectory(folder).value_or(std::vector<std::string>())) {
    int number = 0;
    const bool is_gpu =
        absl::StartsWith(name, "nvidia") && absl::SimpleAtoi(name.substr(6), &number);
    if (is_gpu || name == "nvidiactl" || name == "nvidia-uvm") {
      files.push_back(LookAtFile(JoinPath(folder, name)));
    }
  }
  return files;
}

// Returns true if a program of Trainyard is among the process and those that have started it.
bool IsOfTrainyard(const std::string& root, int64_t pid) {
  for (int i = 0; i < kAncestorsMax && pid > 1; ++i) {
    // "1234 (trainyard-super) S 1200 ..."; a name may have spaces and brackets.
    const std::string stat = ReadText(absl::StrCat(root, "/proc/", pid, "/stat"));
    const size_t opening = stat.find('(');
    const size_t closing = stat.rfind(") ");
    if (opening == std::string::npos || closing == std::string::npos) return false;
    if (absl::StartsWith(stat.substr(opening + 1), "trainyard-")) return true;
    const std::vector<std::string> words = absl::StrSplit(stat.substr(closing + 2), ' ');
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &pid)) return false;
  }
  return false;
}

absl::StatusOr<std::vector<std::vector<std::string>>> AskSmi(const std::string& smi,
                                                             const std::string& query,
                                                             const RunProgram& run) {
  auto result = run({smi, query, "--format=csv,noheader,nounits"});
  if (!result.ok()) return result.status();
  if (result->exit_code != 0) {
    std::string message(
        absl::StripAsciiWhitespace(result->err.empty() ? result->out : result->err));
    if (message.empty()) message = absl::StrCat("exit code ", result->exit_code);
    return absl::UnavailableError(PlainText(std::move(message), kSmiErrorMax));
  }
  return ReadSmiTable(result->out);
}

void AskDriver(GpuFacts& gpus, const std::string& root, const RunProgram& run) {
  const std::string smi = FindSystemProgram("nvidia-smi", root);
  if (smi.empty()) {
    gpus.smi_error = "it is not installed";
    return;
  }
  const auto cards = AskSmi(smi, "--query-gpu=uuid,index,name,memory.total,persistence_mode", run);
  if (!cards.ok()) {
    gpus.smi_error = std::string(cards.status().message());
    return;
  }
  std::vector<std::pair<std::string, std::string>> name_of;
  for (const auto& row : *cards) {
    if (row.size() < 5) continue;
    name_of.emplace_back(row[0], absl::StrCat("GPU ", row[1]));
    gpus.gpus.push_back(absl::StrCat("GPU ", row[1], ", ", row[2], ", ", row[3], " MiB"));
    if (row[4] == "Disabled") gpus.without_persistence.push_back(name_of.back().second);
  }
  const auto processes =
      AskSmi(smi, "--query-compute-apps=gpu_uuid,pid,used_memory,process_name", run);
  if (!processes.ok()) return;
  for (const auto& row : *processes) {
    GpuProcess process;
    if (row.size() < 4 || !absl::SimpleAtoi(row[1], &process.pid)) continue;
    process.gpu = row[0];
    for (const auto& [uuid, name] : name_of) {
      if (uuid == row[0]) process.gpu = name;
    }
    // In a container, the driver does not know how much it is.
    if (!absl::SimpleAtoi(row[2], &process.memory_mib)) process.memory_mib = 0;
    process.program = row[3];
    process.is_of_trainyard = IsOfTrainyard(root, process.pid);
    gpus.processes.push_back(std::move(process));
  }
}

}  // namespace

std::string WhyNotLoaded(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return why == nullptr ? "nobody knows why" : why;
  }
  dlclose(handle);
  return "";
}

std::vector<std::vector<std::string>> ReadSmiTable(absl::string_view text) {
  std::vector<std::vector<std::string>> rows;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    std::vector<std::string> cells = absl::StrSplit(line, ", ");
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    rows.push_back(std::move(cells));
  }
  return rows;
}

GpuFacts LookAtGpus(const std::string& root, const RunProgram& run) {
  GpuFacts gpus;
  gpus.cards = CardsOnBus(root);
  gpus.driver = DriverVersion(root);
  if (gpus.driver.empty()) return gpus;
  gpus.devices = DeviceFiles(root);
  AskDriver(gpus, root, run);
  return gpus;
}

}  // namespace trainyard::doctor
