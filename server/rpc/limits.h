// States the limits of requests, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "common/base/checkpoint_file.h"
#include "common/spec/fields.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::rpc {

// The bytes of a stream in one message: a quarter of the largest message, so that buffers stay
// small.
inline constexpr size_t kChunkBytesMax = size_t{1} << 20;
// The size of the chunks that the server sends: large enough to be fast, and small enough to be
// fair.
inline constexpr int64_t kSendChunkBytes = int64_t{256} << 10;
// One message of a log and of metrics that somebody follows. Hundreds of followers may stop to
// read, and a message waits for each of them.
inline constexpr int64_t kFollowedLogBytes = int64_t{64} << 10;
inline constexpr int64_t kFollowedPointsMax = 1000;
// A page stops at this size, well below the largest message.
inline constexpr size_t kPageBytesMax = size_t{3} << 20;

inline constexpr int kJobsPageDefault = 50;
inline constexpr int kJobsPageMax = 1000;
inline constexpr int kQueuePageDefault = 20;
inline constexpr int kQueuePageMax = 200;
inline constexpr int kEventsPageDefault = 100;
inline constexpr int kEventsPageMax = 1000;

inline constexpr int kSpecsPageDefault = 100;
inline constexpr int kSpecsPageMax = 1000;
// The words about a saved spec.
inline constexpr size_t kNoteBytesMax = 4096;

inline constexpr int kAuditPageDefault = 100;
inline constexpr int kAuditPageMax = 1000;
// The members of a project.
inline constexpr int kMembersMax = 1000;

// The tags that a job has besides those of its spec.
inline constexpr int kTagsAddedMax = 20;
// The points of a metric that are compared when a job was run again. Of longer series, evenly
// chosen ones are.
inline constexpr int64_t kComparedPointsMax = 200'000;
// The jobs of a lineage.
inline constexpr int kRelativesDefault = 200;
inline constexpr int kRelativesMax = 1000;

inline constexpr size_t kRequestIdBytesMax = 64;
inline constexpr size_t kReasonBytesMax = 1000;
inline constexpr size_t kUserBytesMax = 64;
// The users that a worker may refuse at a time. A worker names fewer.
inline constexpr int kRefusedUsersMax = 256;
inline constexpr int kChangesMax = 1000;
inline constexpr int kWatchedJobsMax = 1000;
// Changes of jobs wait at most so long for each other, and a message of them has no more bytes
// before its last one.
inline constexpr absl::Duration kGatherMax = absl::Seconds(1);
inline constexpr size_t kGatheredBytes = size_t{64} << 10;
// The jobs of an array. They are one transaction, and each takes some hundred bytes of memory.
inline constexpr int32_t kArrayJobsMax = 100'000;
inline constexpr int kDependenciesMax = 100;
// The items of one message of CreateJobs, and the messages of one stream that wait for their
// answers. Both are well below what the runtime queues, so that one stream does not block all
// others.
inline constexpr int kCreateItemsMax = 256;
inline constexpr size_t kCreateMessagesMax = 8;
// The jobs that one CancelJobs may name, the inputs that it has under way at a time, and the errors
// that it reports.
inline constexpr int kCancelNamesMax = 10'000;
inline constexpr size_t kCancelBatch = 1000;
inline constexpr int kCancelErrorsMax = 100;
inline constexpr int kWeightMax = 1000;
inline constexpr int kReservedDevicesMax = 4096;
inline constexpr int kSubjectsMax = 100;
inline constexpr int64_t kDrainWithinMaxUs = int64_t{24} * 3600 * 1'000'000;
// The metric points of one append: a hundred times those of one second of fast training.
inline constexpr int kPointsMax = 10'000;
// The digests of one FindCode. A client asks for two: an archive and a diff.
inline constexpr int kDigestsMax = 64;
// The words of a version control on the origin of code, but for the differences.
inline constexpr size_t kOriginBytesMax = 1024;
// The environments of programs in one answer to ListAttempts.
inline constexpr int64_t kEnvironmentsBytesMax = int64_t{1} << 20;
// The devices of a worker, the attempts that it reports, and the files of a checkpoint.
inline constexpr int kDevicesMax = 1024;
inline constexpr int kAttemptsMax = 4096;
inline constexpr int kSplitsMax = 1000;  // of the data sets of a worker
inline constexpr int kFilesMax = kCheckpointFilesMax;
// The attempts and the events that come with an imported job.
inline constexpr int kImportedAttemptsMax = 1000;
inline constexpr int kImportedEventsMax = 1000;
// An import that was not continued for so long gives up what of its files is not committed.
inline constexpr absl::Duration kImportTime = absl::Hours(24);
// The files that the outputs of an attempt leave out.
inline constexpr size_t kLeftOutBytesMax = 4096;
inline constexpr size_t kNameBytesMax = 200;
inline constexpr size_t kPathBytesMax = 1000;
// The largest state.json. It is read when a checkpoint is committed, and contains a spec and some
// numbers.
inline constexpr int64_t kStateBytesMax = int64_t{1} << 20;
// The last values of the metrics of one attempt; further ones are left out.
inline constexpr size_t kLastMetricsMax = 1024;
// The rendezvous values of one attempt in one report.
inline constexpr int kRendezvousKeysMax = 8192;
inline constexpr size_t kRendezvousValueBytesMax = size_t{64} << 10;

// These limits of the spec come from the rules beside its fields. An array derives its jobs' names
// and seeds from the spec's, and a job reports which ranks host which replicas and stages.
inline size_t JobNameBytesMax() {
  return spec::RulesOf<v1::JobSpec>(v1::JobSpec::kNameFieldNumber).max_length();
}
inline uint64_t SeedMax() {
  return static_cast<uint64_t>(spec::RulesOf<v1::TrainSpec>(v1::TrainSpec::kSeedFieldNumber).max());
}
inline int32_t RanksMax() {
  return static_cast<int32_t>(
      spec::RulesOf<v1::DevicesSpec>(v1::DevicesSpec::kCountFieldNumber).max());
}
inline int32_t ReplicasMax() {
  return static_cast<int32_t>(
      spec::RulesOf<v1::TrainSpec>(v1::TrainSpec::kReplicasFieldNumber).max());
}
inline int32_t StagesMax() {
  return static_cast<int32_t>(
      spec::RulesOf<v1::StagesSpec>(v1::StagesSpec::kCountFieldNumber).max());
}

// The jobs that ListUsage lists, and those that it looks at at a time.
inline constexpr int kLargestJobsMax = 1000;
inline constexpr size_t kUsagePageJobs = 4096;

inline constexpr absl::Duration kSyncWaitMax = absl::Seconds(5);
// The streams that are open at a time, of all users, of one of them, and of all workers. Each costs
// a few KiB and a wake-up.
inline constexpr size_t kStreamsOfUsersMax = 2000;
inline constexpr size_t kStreamsOfUserMax = 500;
inline constexpr size_t kStreamsOfWorkersMax = 2000;

}  // namespace trainyard::rpc
