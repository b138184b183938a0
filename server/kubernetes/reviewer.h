// Decides what the token of a pod permits, and remembers that for a short time, so that not every
// call is a call of the API server, and a flood of tokens is none there.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/access/pod.h"
#include "server/kubernetes/api_server.h"
#include "server/kubernetes/options.h"

namespace trainyard::kubernetes {

// Says for how long and for how many tokens answers are remembered.
struct ReviewLimits {
  // A pod that was deleted may still call for so long. A token is never accepted after its end.
  absl::Duration accepted_kept = absl::Seconds(60);
  absl::Duration refused_kept = absl::Seconds(10);
  // After a review without an answer, nobody is reviewed for so long.
  absl::Duration failure_kept = absl::Seconds(1);
  // Tokens are reviewed one after the other, and after one that is refused comes a pause: strangers
  // cause 20 reviews a second at most.
  absl::Duration pause_after_refusal = absl::Milliseconds(50);
  size_t accepted_max = 4096;
  size_t refused_max = 1024;
  // Tokens that wait for their review: of all, and of one address.
  size_t waiting_max = 128;
  size_t waiting_of_address_max = 32;
  // Calls that wait with the same token.
  size_t calls_of_token_max = 1000;
};

// Owns a thread, in which it asks. It is thread-safe.
class Reviewer {
 public:
  Reviewer(Options options, Clock& clock, ReviewLimits limits = {},
           absl::Duration timeout = ApiServer::kTimeout);
  ~Reviewer();

  // Has the token reviewed, unless the answer is known, or the token itself shows that it is none
  // of ours. `done` is called once: at once, or by the thread when Find has the answer.
  void Learn(absl::string_view token, access::PodUse use, absl::string_view address,
             std::function<void()> done);

  // Returns what is known of a token, at once. Returns UNAUTHENTICATED if it is not accepted,
  // PERMISSION_DENIED if its account may not do that, UNAVAILABLE (CLUSTER_UNAVAILABLE) if the API
  // server gives no answer, and RESOURCE_EXHAUSTED (SERVER_BUSY) if too many others wait.
  absl::StatusOr<access::PodIdentity> Find(absl::string_view token, access::PodUse use);

  // Ends the review that is under way, and answers those who wait. Further tokens are UNAVAILABLE.
  void Stop();

 private:
  using Answer = absl::StatusOr<access::PodIdentity>;
  struct Kept {
    Answer answer;
    absl::Duration until;
  };
  using Answers = std::map<std::string, Kept>;  // by digest of use and token
  struct Waiting {
    std::string key;
    std::string token;
    access::PodUse use;
    std::string address;
    std::vector<std::function<void()>> calls;
  };

  void Run();
  Answer Decide(const std::string& token, access::PodUse use);
  absl::StatusOr<std::set<std::string>> WorkersOf(const Account& account, const ReviewedToken& pod);
  // Returns the answer that is remembered, or null.
  const Answer* Remembered(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes an answer, and returns the calls that need wait no more.
  std::vector<std::function<void()>> Take(Waiting waiting, Answer answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::function<void()>> GiveUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayWait(absl::string_view address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Clock& clock_;
  const ReviewLimits limits_;
  ApiServer api_;
  Mutex mutex_;
  CondVar changed_;
  CondVar stopped_;  // a flood must not wake the thread from its pause
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Answers accepted_ ABSL_GUARDED_BY(mutex_);
  Answers refused_ ABSL_GUARDED_BY(mutex_);
  // The first one is under review.
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  // Says why the last review has given no answer. It is OK if it has.
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Duration failed_until_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  std::thread thread_;
};

}  // namespace trainyard::kubernetes
