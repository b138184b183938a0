// Implements how ranks introduce themselves to each other, and map each other's memory.
#include "worker/parallel/shared/shared_gang.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/parallel/shm/peer_wait.h"

namespace trainyard::parallel {
namespace {

// The facts that ranks tell each other before they share anything.
struct Introduction {
  uint64_t host = 0;  // equal on ranks whose processes have the same numbers
  uint64_t pid = 0;
  uint64_t boards_fd = 0;  // on the first rank
  uint64_t fd = 0;
  uint64_t bytes = 0;
  uint64_t reduction_offset = 0;
  uint64_t parameters_offset = 0;
  uint64_t slots = 0;
  uint64_t slot_offsets[kTermsMax] = {};
};
constexpr size_t kWords = sizeof(Introduction) / sizeof(uint64_t);

// Communicators carry floats, each of which holds 16 bits without rounding.
constexpr size_t kFloatsPerWord = 4;
constexpr size_t kFloats = kWords * kFloatsPerWord;

void Encode(const Introduction& introduction, absl::Span<float> floats) {
  const auto* words = reinterpret_cast<const uint64_t*>(&introduction);
  for (size_t i = 0; i < kFloats; ++i) {
    floats[i] = static_cast<float>(words[i / kFloatsPerWord] >> (i % kFloatsPerWord * 16) & 0xffff);
  }
}

Introduction Decode(absl::Span<const float> floats) {
  uint64_t words[kWords] = {};
  for (size_t i = 0; i < kFloats; ++i) {
    words[i / kFloatsPerWord] |= static_cast<uint64_t>(floats[i]) << (i % kFloatsPerWord * 16);
  }
  Introduction introduction;
  std::copy_n(words, kWords, reinterpret_cast<uint64_t*>(&introduction));
  return introduction;
}

// Returns a number for the running kernel and the process namespace.
uint64_t HostNumber() {
  std::string text;
  const absl::StatusOr<std::string> boot = ReadFile("/proc/sys/kernel/random/boot_id");
  if (boot.ok()) text = *boot;
  struct stat info {};
  if (stat("/proc/self/ns/pid", &info) == 0) absl::StrAppend(&text, " ", info.st_ino);
  return std::hash<std::string>()(text);
}

Introduction IntroductionOf(const SharedArena& arena, const SharedGang& gang) {
  TY_CHECK(arena.slot_offsets.size() <= kTermsMax);
  Introduction mine = {
      .host = HostNumber(),
      .pid = static_cast<uint64_t>(getpid()),
      .boards_fd = static_cast<uint64_t>(gang.mappings.empty() ? -1 : gang.mappings[0]->fd()),
      .fd = static_cast<uint64_t>(arena.fd),
      .bytes = static_cast<uint64_t>(arena.bytes),
      .reduction_offset = static_cast<uint64_t>(arena.reduction_offset),
      .parameters_offset = static_cast<uint64_t>(arena.parameters_offset),
      .slots = arena.slot_offsets.size()};
  std::copy(arena.slot_offsets.begin(), arena.slot_offsets.end(), mine.slot_offsets);
  return mine;
}

RankMemory MemoryAt(std::byte* base, const Introduction& of) {
  const auto at = [base](uint64_t offset) { return reinterpret_cast<float*>(base + offset); };
  RankMemory memory = {
      .reduction = at(of.reduction_offset), .slots = {}, .parameters = at(of.parameters_offset)};
  for (uint64_t slot = 0; slot < of.slots; ++slot)
    memory.slots.push_back(at(of.slot_offsets[slot]));
  return memory;
}

int64_t BoardBytes(size_t ranks) {
  return static_cast<int64_t>(ranks * sizeof(RankBoard));
}

absl::Status MakeBoards(SharedGang& gang) {
  const size_t ranks = gang.members.size();
  TY_ASSIGN_OR_RETURN(auto boards, SharedMemory::Create(BoardBytes(ranks)));
  for (size_t of = 0; of < ranks; ++of) {
    new (reinterpret_cast<RankBoard*>(boards->data()) + of) RankBoard;
  }
  gang.mappings.push_back(std::move(boards));
  return absl::OkStatus();
}

// Maps the boards, which the first rank has made and holds, and the others' memory.
absl::Status Attach(const SharedArena& arena, const std::vector<Introduction>& ranks,
                    SharedGang& gang) {
  const auto rank = static_cast<size_t>(gang.rank);
  if (arena.fd < 0) return absl::FailedPreconditionError("its own memory is no file");
  for (const Introduction& other : ranks) {
    if (other.host == ranks[0].host) continue;
    return absl::FailedPreconditionError("it is on another host or in another process namespace");
  }
  if (rank != 0) {
    TY_ASSIGN_OR_RETURN(auto boards, SharedMemory::Attach(SharedMemory::AddressOf(
                                                              static_cast<int64_t>(ranks[0].pid),
                                                              static_cast<int>(ranks[0].boards_fd)),
                                                          BoardBytes(ranks.size())));
    gang.mappings.push_back(std::move(boards));
  }
  auto* const boards = reinterpret_cast<RankBoard*>(gang.mappings[0]->data());
  for (size_t of = 0; of < ranks.size(); ++of) {
    gang.boards.push_back(boards + of);
    TY_ASSIGN_OR_RETURN(UniqueFd life, OpenLife(static_cast<int>(ranks[of].pid)));
    gang.lives.push_back(std::move(life));
    if (of == rank) {
      gang.memory.push_back(MemoryAt(arena.base, ranks[of]));
      continue;
    }
    TY_ASSIGN_OR_RETURN(auto memory, SharedMemory::Attach(SharedMemory::AddressOf(
                                                              static_cast<int64_t>(ranks[of].pid),
                                                              static_cast<int>(ranks[of].fd)),
                                                          static_cast<int64_t>(ranks[of].bytes)));
    memory->AskForLargePages();
    gang.memory.push_back(MemoryAt(memory->data(), ranks[of]));
    gang.mappings.push_back(std::move(memory));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedGang> ConnectSharedGang(const SharedArena& arena, std::vector<int> members,
                                             Communicator& group) {
  const auto size = static_cast<size_t>(group.world_size());
  TY_CHECK(members.size() == size);
  SharedGang gang;
  gang.rank = group.rank();
  gang.members = std::move(members);
  const absl::Status made = gang.rank == 0 ? MakeBoards(gang) : absl::OkStatus();
  std::vector<float> mine(kFloats);
  std::vector<float> all(kFloats * size);
  Encode(IntroductionOf(arena, gang), absl::MakeSpan(mine));
  TY_RETURN_IF_ERROR(group.AllGather(mine, absl::MakeSpan(all)));
  std::vector<Introduction> ranks;
  for (size_t of = 0; of < size; ++of) {
    ranks.push_back(Decode(absl::MakeConstSpan(all).subspan(of * kFloats, kFloats)));
  }

  // All ranks choose the same way, and none continues before all have what they need.
  const absl::Status attached = made.ok() ? Attach(arena, ranks, gang) : made;
  std::vector<float> failures(size, 0.0f);
  if (!attached.ok()) failures[static_cast<size_t>(gang.rank)] = 1;
  TY_RETURN_IF_ERROR(group.AllReduce(absl::MakeSpan(failures)));
  for (size_t of = 0; of < size; ++of) {
    if (failures[of] == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", gang.members[of], " cannot map the memory of the others",
                     attached.ok() ? "" : absl::StrCat(": ", attached.message())));
  }
  return gang;
}

}  // namespace trainyard::parallel
