// The heap of events, and the hash of the story.
#include "tests/sim/world.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"

namespace trainyard::sim {

void World::At(Time when, std::function<void()> event) {
  queue_.push_back({std::max(when, now_), events_++, std::move(event)});
  std::push_heap(queue_.begin(), queue_.end());
}

bool World::Step(Time limit) {
  if (queue_.empty() || queue_.front().when > limit) return false;
  std::pop_heap(queue_.begin(), queue_.end());
  const Event event = std::move(queue_.back());
  queue_.pop_back();
  now_ = event.when;
  event.happen();
  return true;
}

void World::SayLine(absl::string_view who, const std::string& line) {
  for (const absl::string_view text : {who, absl::string_view(line)}) {
    for (const char c : text) {
      hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
  }
  hash_ ^= static_cast<uint64_t>(now_);
  if (!tell_) return;
  const Time ms = now_ / kMillisecond;
  absl::PrintF("%02d:%02d:%02d.%03d  %-9s %s\n", ms / 3'600'000, ms / 60'000 % 60, ms / 1000 % 60,
               ms % 1000, who, line);
}

void World::Violate(absl::string_view rule, absl::string_view what) {
  if (violated()) return;
  rule_ = std::string(rule);
  what_ = std::string(what);
  SayLine("BROKEN", absl::StrCat(rule, ": ", what));
}

}  // namespace trainyard::sim
