// Plans the arena, and keeps count of the bytes of live buffers.
#include "worker/engine/graph/memory_plan.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/strings.h"
#include "worker/engine/graph/shared_storage.h"

namespace trainyard::engine {
namespace {

std::atomic<int64_t> live_bytes{0};

// Addresses only have to tell buffers apart, so a part is enough for a buffer that no machine could
// hold.
constexpr int64_t kAddressesMax = int64_t{2} << 40;

size_t AddressBytes(int64_t bytes) {
  return static_cast<size_t>(std::min(bytes, kAddressesMax));
}

}  // namespace

std::vector<std::pair<absl::string_view, int64_t>> MemoryPlan::categories() const {
  std::vector<std::pair<absl::string_view, int64_t>> all = {
      {"parameters", parameters},   {"optimizer", optimizer},  {"gradients", gradients},
      {"activations", activations}, {"workspace", workspace},  {"kernels", kernels},
      {"batches", batches},         {"checkpoint", checkpoint}};
  std::erase_if(all, [](const auto& category) { return category.second == 0; });
  return all;
}

absl::Status CheckFits(const MemoryPlan& plan, int64_t bytes, int64_t rows_that_fit) {
  if (plan.total() <= bytes) {
    return absl::OkStatus();
  }
  const std::string categories =
      absl::StrJoin(plan.categories(), ", ", [](std::string* out, const auto& category) {
        absl::StrAppend(out, category.first, " ", FormatBytes(category.second));
      });
  return absl::ResourceExhaustedError(
      absl::StrCat("the step needs ", FormatBytes(plan.total()), " (", categories, ") and has ",
                   FormatBytes(bytes),
                   rows_that_fit > 0 ? absl::StrCat("; a batch of ", rows_that_fit, " would fit")
                                     : std::string("; no batch would fit")));
}

ArenaLayout PlanArena(absl::Span<const Lifetime> lifetimes) {
  ArenaLayout layout;
  layout.offsets.resize(lifetimes.size());
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [lifetimes](size_t a, size_t b) {
    return lifetimes[a].bytes > lifetimes[b].bytes;
  });
  std::vector<size_t> placed;  // by offset
  for (size_t current : order) {
    const Lifetime& wanted = lifetimes[current];
    const int64_t bytes = AlignUp(wanted.bytes);
    int64_t end_of_previous = 0;
    int64_t best_offset = -1;
    int64_t best_gap = 0;
    for (size_t other : placed) {
      if (lifetimes[other].last < wanted.first || lifetimes[other].first > wanted.last) {
        continue;
      }
      const int64_t gap = layout.offsets[other] - end_of_previous;
      if (gap >= bytes && (best_offset < 0 || gap < best_gap)) {
        best_offset = end_of_previous;
        best_gap = gap;
      }
      end_of_previous =
          std::max(end_of_previous, layout.offsets[other] + AlignUp(lifetimes[other].bytes));
    }
    layout.offsets[current] = best_offset < 0 ? end_of_previous : best_offset;
    layout.bytes = std::max(layout.bytes, layout.offsets[current] + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), current,
                                   [&layout](size_t a, size_t b) {
                                     return layout.offsets[a] < layout.offsets[b];
                                   }),
                  current);
  }
  return layout;
}

ValueLifetimes ComputeLifetimes(const StepGraph& step, int64_t rows, int64_t element_bytes) {
  const Graph& graph = step.graph;
  const std::vector<ValueId> storage = SharedStorage(graph);
  ValueLifetimes result;
  result.lifetime_of.assign(graph.values.size(), -1);
  std::vector<int> of_root(graph.values.size(), -1);
  auto touch = [&](ValueId id, int call) {
    const ValueId root = storage[static_cast<size_t>(id)];
    const Role role = graph.value(root).role;
    if (role != Role::kActivation && role != Role::kGradient) {
      return;
    }
    int& lifetime = of_root[static_cast<size_t>(root)];
    if (lifetime < 0) {
      lifetime = static_cast<int>(result.lifetimes.size());
      result.lifetimes.push_back({graph.value(root).Elements(rows) * element_bytes, call, call});
    }
    result.lifetimes[static_cast<size_t>(lifetime)].last = call;
    result.lifetime_of[static_cast<size_t>(id)] = lifetime;
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const std::vector<ValueId>* ids : {&graph.nodes[i].inputs, &graph.nodes[i].outputs}) {
      for (ValueId id : *ids) {
        if (id != kNoValue) {
          touch(id, static_cast<int>(i));
        }
      }
    }
  }
  for (ValueId kept : step.kept) {
    touch(kept, static_cast<int>(graph.nodes.size()));
  }
  return result;
}

AlignedBuffer::AlignedBuffer(int64_t bytes, Backing backing)
    : bytes_(AlignUp(bytes)), backing_(backing) {
  if (bytes_ > 0 && backing == Backing::kAddresses) {
    void* const addresses = mmap(nullptr, AddressBytes(bytes_), PROT_NONE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TY_CHECK(addresses != MAP_FAILED);
    data_ = static_cast<std::byte*>(addresses);
  } else if (bytes_ > 0 && backing == Backing::kFile) {
    auto file = SharedMemory::Create(bytes_);
    TY_CHECK_OK(file.status());
    file_ = *std::move(file);
    file_->AskForLargePages();
    data_ = file_->data();
    // The pages are taken now, as those of other buffers are.
    std::memset(data_, 0, static_cast<size_t>(bytes_));
    AddLiveBufferBytes(bytes_);
  } else if (bytes_ > 0) {
    data_ = static_cast<std::byte*>(
        std::aligned_alloc(static_cast<size_t>(kArenaAlignment), static_cast<size_t>(bytes_)));
    TY_CHECK(data_ != nullptr);
    std::memset(data_, 0, static_cast<size_t>(bytes_));
    AddLiveBufferBytes(bytes_);
  }
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      backing_(other.backing_),
      file_(std::move(other.file_)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(backing_, other.backing_);
  std::swap(file_, other.file_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr && backing_ == Backing::kAddresses) {
    munmap(data_, AddressBytes(bytes_));
  } else if (data_ != nullptr) {
    if (backing_ == Backing::kMemory) std::free(data_);
    AddLiveBufferBytes(-bytes_);
  }
}

int64_t LiveBufferBytes() {
  return live_bytes;
}

void AddLiveBufferBytes(int64_t bytes) {
  live_bytes += bytes;
}

}  // namespace trainyard::engine
