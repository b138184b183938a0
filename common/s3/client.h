// Reads and writes the objects of one bucket, of AWS or of a store that speaks its protocol.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/curl/caller.h"
#include "common/s3/credentials.h"
#include "common/s3/sign.h"
#include "common/s3/xml.h"

namespace trainyard::s3 {

inline constexpr int64_t kPartBytesMin = int64_t{5} << 20;  // of all parts but the last; S3's limit
inline constexpr int64_t kPutBytesMax = int64_t{1} << 30;   // our limit: it is all in memory

// A bucket and the beginning of the keys in it.
struct Location {
  std::string bucket;
  std::string prefix;  // empty, or ends with a slash
};
// Parses "s3://bucket/some/folder". Returns INVALID_ARGUMENT for everything else.
absl::StatusOr<Location> ParseLocation(absl::string_view text);

struct ClientOptions {
  // "https://host:port", or "" for AWS's own in the region.
  std::string endpoint;
  std::string region = "us-east-1";  // stores other than AWS rarely have any other
  std::string bucket;
  // Puts the bucket into the path in place of the host's name. Most stores other than AWS need
  // that, so the default is true if there is an endpoint.
  std::optional<bool> has_bucket_in_path;
  Credentials credentials;
  // If set, it is asked for the keys before each try, because they may expire. It is thread-safe.
  std::function<absl::StatusOr<Credentials>()> find_credentials = nullptr;
  std::string authorities_file;  // see curl::Request

  // The pauses between tries double from the first to the longest, with jitter: six tries last
  // about ten seconds, which outlives the restart of a store's front end.
  int tries = 6;
  absl::Duration first_pause = absl::Milliseconds(300);
  absl::Duration longest_pause = absl::Seconds(20);
  absl::Duration connect_timeout = absl::Seconds(10);
  absl::Duration stall_timeout = absl::Seconds(60);
  // A try may take so long, and longer for each byte that it moves.
  absl::Duration call_timeout = absl::Minutes(2);
  int64_t slowest_bytes_per_second = int64_t{64} << 10;
};

// A condition under which an object is written.
struct PutCondition {
  bool is_new = false;    // there is no object with that key
  std::string etag = {};  // else the object has this ETag; empty for no condition
};

struct ObjectInfo {
  int64_t size = 0;
  std::string etag;  // with its quotes
};
struct Object {
  ObjectInfo info;
  std::string content;
};
struct ReadRange {
  int64_t offset = 0;
  int64_t size = -1;  // to the end if negative
};
struct ListRequest {
  std::string prefix = {};
  std::string after = {};  // only keys behind this one
  std::string token = {};  // ListPage::next of the page before
  int keys_max = 1000;
};

// The client. It is thread-safe: calls run side by side and block. Each call is tried again, with
// jittered pauses, after failures that may pass (connections, timeouts, 408, 429, 5xx but 501), and
// never after refusals. Errors name bucket, key and endpoint, say what to do, and are those of
// errors.h; all calls return UNAVAILABLE or DEADLINE_EXCEEDED after the last try, and CANCELLED.
class Client {
 public:
  // Borrows clock and generator. Returns INVALID_ARGUMENT for a malformed endpoint or bucket.
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options, Clock& clock,
                                                        Rng& rng);

  // Returns the ETag. Returns ABORTED (S3_CONDITION_FAILED) if the condition does not hold. It may
  // be this very call that has broken the condition, if its first answer was lost. Returns
  // UNIMPLEMENTED (S3_NOT_SUPPORTED) from stores that know no conditions; others ignore them: see
  // Probe.
  absl::StatusOr<std::string> Put(const std::string& key, absl::string_view body,
                                  const PutCondition& condition = {});
  // Returns NOT_FOUND, or RESOURCE_EXHAUSTED if the object has over `bytes_max`.
  absl::StatusOr<Object> Get(const std::string& key, int64_t bytes_max);
  using Sink = std::function<absl::Status(absl::string_view piece)>;
  // Gives the sink a range of an object, in order and each byte once. Connections that break are
  // continued from where they broke, as long as the object stays the same one. Tries that bring
  // nothing are counted anew after each that has brought something. Returns what the sink returns
  // if that is not OK.
  absl::StatusOr<ObjectInfo> Read(const std::string& key, const ReadRange& range, const Sink& sink);
  absl::StatusOr<ObjectInfo> Head(const std::string& key);
  // It is no error if there is no such object.
  absl::Status Delete(const std::string& key);
  absl::StatusOr<ListPage> List(const ListRequest& request);

  // A multipart upload: its parts become an object when it is completed. UploadFile does all of it.
  absl::StatusOr<std::string> CreateUpload(const std::string& key);
  // Returns the ETag of the part. Numbers begin with 1.
  absl::StatusOr<std::string> UploadPart(const std::string& key, const std::string& upload,
                                         int number, absl::string_view body);
  absl::StatusOr<std::string> CompleteUpload(const std::string& key, const std::string& upload,
                                             const std::vector<std::string>& etags);
  // It works after Cancel too, and is then tried once.
  absl::Status AbortUpload(const std::string& key, const std::string& upload);

  // All calls, now and later, end with CANCELLED within about a second.
  void Cancel();
  bool is_cancelled() const { return is_cancelled_; }

  const ClientOptions& options() const { return options_; }

 private:
  struct Plan;
  Client(ClientOptions options, Clock& clock, Rng& rng)
      : options_(std::move(options)), clock_(clock), rng_(rng) {}
  // Calls until there is a success, a refusal, or no try left.
  absl::StatusOr<curl::Response> Run(Plan& plan);
  absl::StatusOr<curl::Response> Try(const Plan& plan, std::string& date);
  absl::StatusOr<Credentials> FindCredentials() const;
  // Returns how long a try that moves so many bytes may take.
  absl::Duration TimeFor(int64_t bytes) const;
  // Returns false once cancelled.
  bool Pause(absl::Duration duration);

  const ClientOptions options_;
  std::string scheme_;  // "https://"
  std::string host_;    // with its port, and with the bucket if that is not in the path
  bool is_loopback_ = false;
  Clock& clock_;
  Rng& rng_;
  curl::Caller caller_;
  std::atomic<bool> is_cancelled_ = false;
  Mutex mutex_;  // for the pauses alone
  CondVar cancelled_;
};

// The ways in which stores treat the conditions If-None-Match and If-Match of writes.
enum class Conditions {
  kHonoured,  // it refuses writes whose condition does not hold
  // It does so, and If-Match must have the ETag without its quotes, as in radosgw.
  kHonouredWithoutQuotes,
  kIgnored,  // it writes regardless
  kRefused,  // it refuses all such requests
};
// Returns true if If-None-Match and If-Match can be relied on.
bool AreHonoured(Conditions conditions);
// Returns the condition that the object still has this ETag, as the store wants to read it.
PutCondition Replaces(const std::string& etag, Conditions conditions);
// Finds out by writing a small object below the prefix, which it removes again.
absl::StatusOr<Conditions> Probe(Client& client, const std::string& prefix, Rng& rng);

}  // namespace trainyard::s3
