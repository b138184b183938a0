// Derives from a committed change of a job what is told to whom.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"
#include "server/runtime/board.h"
#include "server/store/sqlite/notify_store.h"

namespace trainyard::notify {

// The events of v1.NotifyEvent, as bits of TargetRecord::events.
enum EventBit : uint32_t { kStart = 1, kEnd = 2, kFailure = 4, kStuck = 8 };
inline constexpr uint32_t kDefaultEvents = kEnd | kFailure;

// Returns "start" and so on, or 0 for a text that is none.
std::string EventText(uint32_t bit);
uint32_t ParseEvent(absl::string_view text);

// Returns true if something may have to be told of such an event.
bool IsTold(const core::EventRecord& event);

// The job that an event is about, as it stands now.
struct Subject {
  core::JobRecord job;
  std::shared_ptr<const core::AttemptRecord> attempt;  // null if the event is about none
};
// Returns the subject, or nothing if the job is gone.
std::optional<Subject> SubjectOf(const core::EventRecord& event, const runtime::Board& board);

// Returns the targets that the job's spec names, without a name. A webhook that the owner has among
// `targets` is signed with its key.
std::vector<store::TargetRecord> TargetsOfSpec(const core::JobRecord& job,
                                               const std::vector<store::TargetRecord>& targets);

// Returns the deliveries of an event to these targets, each at most once. The id of a delivery
// follows from event and target, so that an event which is worked off again after a crash gives the
// same one. An end is told as an end alone, and not as the failure of its last attempt, too, where
// both are wanted.
std::vector<store::DeliveryRecord> DeliveriesOf(const core::EventRecord& event,
                                                const Subject& subject,
                                                const std::vector<store::TargetRecord>& targets);

}  // namespace trainyard::notify
