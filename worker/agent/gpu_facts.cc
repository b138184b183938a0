// Contains tables of NVIDIA's documentation, as far as the worker acts upon them.
#include "worker/agent/gpu_facts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace trainyard::agent {
namespace {

// These Xids concern the GPU and not the program on it, according to NVIDIA's catalogue
// (docs.nvidia.com/deploy/xid-errors) and its notes on page retirement and row remapping. The
// following are not here, since the next program runs normally: 13 (exception of a kernel), 31 and
// 32 (bad addresses and commands), 43 and 45 (what follows them), 68, 69 and 109.
constexpr XidMeaning kHardwareXids[] = {
    {46, "the GPU has stopped processing", "reset it", true},
    {48, "memory has failed beyond correction", "reset it; replace it if that returns", true},
    {61, "the GPU's microcontroller reports an error of its own", "reset it", true},
    {62, "the GPU's microcontroller has halted", "reset it", true},
    {63, "failed memory waits to be replaced by spare memory", "reset it", false},
    {64, "failed memory could not be set aside", "reset it; replace it if that returns", false},
    {74, "an NVLink has failed", "reset it; look at the link if that returns", false},
    {79, "the GPU has fallen off the bus", "reset or replace it", true},
    {92, "memory is corrected too often", "watch it; replace it if that returns", false},
    {94, "memory has failed under one process", "reset it; replace it if that returns", true},
    {95, "memory has failed, and more than one process may be hurt", "reset it", true},
    {119, "the GPU's system processor does not answer", "reset it", true},
    {120, "the GPU's system processor has failed", "reset it", true},
    {140, "memory has failed beyond correction", "reset it", true},
};

}  // namespace

const XidMeaning* HardwareXid(int64_t xid) {
  const auto* found = std::find_if(std::begin(kHardwareXids), std::end(kHardwareXids),
                                   [xid](const XidMeaning& row) { return row.xid == xid; });
  return found == std::end(kHardwareXids) ? nullptr : found;
}

std::string SlowedBy(uint64_t throttle_reasons) {
  // These are bits of nvmlClocksThrottleReasons. An idle GPU (1), clocks that somebody has set (2)
  // and displays (0x100) are no troubles.
  constexpr std::pair<uint64_t, const char*> kReasons[] = {{0x20 | 0x40, "heat"},
                                                           {0x4, "power cap"},
                                                           {0x80, "power brake"},
                                                           {0x10, "the slowest GPU of its group"}};
  constexpr uint64_t kHardwareSlowdown = 0x8;
  std::vector<std::string> words;
  for (const auto& [bits, word] : kReasons) {
    if ((throttle_reasons & bits) != 0) words.push_back(word);
  }
  // The hardware sets this bit for heat and for power alike. It is reported only if nothing more
  // precise is known.
  if (words.empty() && (throttle_reasons & kHardwareSlowdown) != 0) words.push_back("hardware");
  return absl::StrJoin(words, ", ");
}

std::vector<int> NumberIslands(int count, const std::function<bool(int, int)>& linked) {
  std::vector<int> islands(static_cast<size_t>(count), 0);
  int last = 0;
  for (int first = 0; first < count; ++first) {
    if (islands[static_cast<size_t>(first)] != 0) continue;
    std::vector<int> reached = {first};
    for (size_t next = 0; next < reached.size(); ++next) {
      for (int other = first + 1; other < count; ++other) {
        int& island = islands[static_cast<size_t>(other)];
        if (island != 0 || other == reached[next] || !linked(reached[next], other)) continue;
        island = last + 1;
        reached.push_back(other);
      }
    }
    if (reached.size() > 1) islands[static_cast<size_t>(first)] = ++last;
  }
  return islands;
}

std::string DeviceTypeOf(const std::string& product) {
  std::vector<std::string> words;
  for (const absl::string_view word :
       absl::StrSplit(product, absl::ByAnyChar(" -_/().+"), absl::SkipEmpty())) {
    std::string lower;
    for (const char c : absl::AsciiStrToLower(word)) {
      if (absl::ascii_isalnum(static_cast<unsigned char>(c))) lower.push_back(c);
    }
    // The maker, the brand, the form factor and the memory do not belong to the type. Of an
    // instance
    // ("MIG 1g.18gb"), the number of its slices does.
    const bool memory = lower.size() > 2 && absl::EndsWith(lower, "gb") &&
                        absl::ascii_isdigit(static_cast<unsigned char>(lower.front()));
    if (lower.empty() || lower == "nvidia" || lower == "geforce" || lower == "tesla" ||
        lower == "quadro" || lower == "pcie" || lower == "hbm3" || lower == "hbm3e" ||
        lower == "hbm2" || lower == "hbm2e" || lower == "sxm2" || lower == "sxm4" ||
        lower == "sxm5" || memory) {
      continue;
    }
    words.push_back(std::move(lower));
  }
  return words.empty() ? "gpu" : absl::StrJoin(words, "-");
}

}  // namespace trainyard::agent
