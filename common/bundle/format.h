// Defines what a bundle is: a job as one file, a tar file that is compressed with zstd. Its first
// entry, bundle.json, lists all others with their sizes and hashes, and they follow in the order of
// the list. docs/bundles.md describes the format for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard::bundle {

// A reader takes every minor part of a format whose major part it knows.
inline constexpr int kFormatMajor = 1;
inline constexpr int kFormatMinor = 0;

inline constexpr char kManifestName[] = "bundle.json";
inline constexpr char kJobName[] = "job.json";
inline constexpr char kAttemptsName[] = "attempts.json";
inline constexpr char kEventsName[] = "events.jsonl";
inline constexpr char kMetricsName[] = "metrics.jsonl";
inline constexpr char kCheckpointsName[] = "checkpoints.json";
inline constexpr char kCodeName[] = "code.tar";
inline constexpr char kCodeDiffName[] = "code.diff";

// The first bytes of every file that zstd has made.
inline constexpr absl::string_view kMagic = "\x28\xb5\x2f\xfd";

enum class Part {
  kUnknown,
  kJob,
  kAttempts,
  kEvents,
  kMetrics,
  kCheckpoints,
  kCode,
  kCodeDiff,
  kCheckpointFile,
  kLog,
};

// The name of an entry, taken apart.
struct PartName {
  Part part = Part::kUnknown;
  int64_t step = 0;  // of a kCheckpointFile
  std::string file;  // of a kCheckpointFile
  int32_t rank = 0;  // of a kLog
};
PartName ParsePartName(absl::string_view name);
std::string CheckpointFileName(int64_t step, absl::string_view file);
std::string LogName(int32_t rank);
// Returns true for a path of an entry that leads nowhere else: "notes/first.json".
bool IsPlainPath(absl::string_view path);

// These bound what a reader accepts.
struct Limits {
  int64_t manifest_bytes = int64_t{16} << 20;
  // A part that is read at once.
  int64_t json_bytes = int64_t{64} << 20;
  int64_t entries = 20'000;
};
// Returns the largest size of an entry in bytes.
int64_t BytesMax(Part part, const Limits& limits);

struct BundleEntry {
  std::string name;
  int64_t size = 0;
  std::string hash;  // "sha256:" and 64 hex digits

  friend bool operator==(const BundleEntry&, const BundleEntry&) = default;
};

struct Manifest {
  int format_major = kFormatMajor;
  int format_minor = kFormatMinor;
  std::string version;  // of the Trainyard that has written it
  std::string time;     // when it was written, RFC 3339
  std::string server;   // the address of the server from which it comes
  std::string job;      // jobs/{number} there
  std::string uid;
  std::string title;  // the name in its spec
  std::string user;
  std::vector<BundleEntry> entries;  // all but bundle.json, in their order

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::string ManifestText(const Manifest& manifest);

// Reads a manifest. `bundle` is the name of the file in messages. What a newer minor format has
// added is left out, and told in `warnings`. Returns INVALID_ARGUMENT (BUNDLE_REFUSED) for what is
// no such text, RESOURCE_EXHAUSTED (BUNDLE_TOO_LARGE) past a limit, and FAILED_PRECONDITION
// (BUNDLE_TOO_NEW).
absl::StatusOr<Manifest> ParseManifest(absl::string_view bundle, absl::string_view text,
                                       const Limits& limits, std::vector<std::string>& warnings);

}  // namespace trainyard::bundle
