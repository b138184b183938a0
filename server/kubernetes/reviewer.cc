// Keeps a queue for its thread, and two tables, so that those who are refused never displace those
// who are accepted.
#include "server/kubernetes/reviewer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/worker_name.h"
#include "common/tls/digest.h"
#include "server/kubernetes/claims.h"

namespace trainyard::kubernetes {
namespace {

constexpr absl::Duration kRetryDelay = absl::Seconds(1);

std::string KeyOf(absl::string_view token, access::PodUse use) {
  return tls::Sha256(absl::StrCat(AudienceOf(use), "\n", token));
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
}

absl::Status ClusterUnavailable(absl::string_view why) {
  absl::Status status =
      MakeError(absl::StatusCode::kUnavailable, "CLUSTER_UNAVAILABLE",
                absl::StrCat("the token of the pod cannot be verified now; ", why));
  SetRetryDelay(status, kRetryDelay);
  return status;
}

absl::Status TooManyWait() {
  absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted, "SERVER_BUSY",
                "too many tokens of pods wait to be verified; try again in a second");
  SetRetryDelay(status, kRetryDelay);
  return status;
}

}  // namespace

Reviewer::Reviewer(Options options, Clock& clock, ReviewLimits limits, absl::Duration timeout)
    : options_(std::move(options)),
      clock_(clock),
      limits_(limits),
      api_(options_.api_url, options_.access_folder, timeout) {
  thread_ = std::thread([this] { Run(); });
}

Reviewer::~Reviewer() {
  Stop();
}

void Reviewer::Stop() {
  {
    const MutexLock lock(&mutex_);
    if (is_stopping_) return;
    is_stopping_ = true;
  }
  api_.Stop();
  changed_.SignalAll();
  stopped_.SignalAll();
  thread_.join();
}

const Reviewer::Answer* Reviewer::Remembered(const std::string& key) {
  const absl::Duration now = clock_.Uptime();
  for (Answers* answers : {&accepted_, &refused_}) {
    const auto found = answers->find(key);
    if (found == answers->end()) continue;
    if (now < found->second.until) return &found->second.answer;
    answers->erase(found);
  }
  return nullptr;
}

bool Reviewer::MayWait(absl::string_view address) const {
  if (waiting_.size() >= limits_.waiting_max) return false;
  const auto of_address =
      std::count_if(waiting_.begin(), waiting_.end(),
                    [address](const Waiting& each) { return each.address == address; });
  return static_cast<size_t>(of_address) < limits_.waiting_of_address_max;
}

void Reviewer::Learn(absl::string_view token, access::PodUse use, absl::string_view address,
                     std::function<void()> done) {
  if (!CheckClaims(token, use, clock_.Now()).ok()) {
    done();
    return;
  }
  std::string key = KeyOf(token, use);
  {
    const MutexLock lock(&mutex_);
    const bool is_decided =
        is_stopping_ || Remembered(key) != nullptr || clock_.Uptime() < failed_until_;
    const auto same = std::find_if(waiting_.begin(), waiting_.end(),
                                   [&key](const Waiting& each) { return each.key == key; });
    if (!is_decided && same != waiting_.end() && same->calls.size() < limits_.calls_of_token_max) {
      same->calls.push_back(std::move(done));
      return;
    }
    if (!is_decided && same == waiting_.end() && MayWait(address)) {
      waiting_.push_back({std::move(key), std::string(token), use, std::string(address), {}});
      waiting_.back().calls.push_back(std::move(done));
      changed_.SignalAll();
      return;
    }
  }
  done();
}

absl::StatusOr<access::PodIdentity> Reviewer::Find(absl::string_view token, access::PodUse use) {
  const absl::Time now = clock_.Now();
  TY_RETURN_IF_ERROR(CheckClaims(token, use, now).status());
  const std::string key = KeyOf(token, use);
  const MutexLock lock(&mutex_);
  if (const Answer* known = Remembered(key); known != nullptr) return *known;
  if (is_stopping_) return ClusterUnavailable("the server is shutting down");
  // Calls that a failed review has released may come here later than the next one is tried.
  if (!failure_.ok()) return failure_;
  return TooManyWait();
}

absl::StatusOr<std::set<std::string>> Reviewer::WorkersOf(const Account& account,
                                                          const ReviewedToken& pod) {
  if (pod.pod.empty() || pod.pod_uid.empty()) {
    return MakeError(absl::StatusCode::kPermissionDenied, "TOKEN_NOT_BOUND",
                     "the token is bound to no pod, so that it proves no worker's name; project "
                     "one into the pod of the worker");
  }
  std::set<std::string> names = {WorkerNameOf(pod.pod)};
  std::string node = pod.node;
  if (node.empty()) {
    TY_ASSIGN_OR_RETURN(node, api_.NodeOf(account.space, pod));
  }
  if (!node.empty()) names.insert(WorkerNameOf(node));
  return names;
}

Reviewer::Answer Reviewer::Decide(const std::string& token, access::PodUse use) {
  TY_ASSIGN_OR_RETURN(const absl::Time expires, CheckClaims(token, use, clock_.Now()));
  TY_ASSIGN_OR_RETURN(const ReviewedToken review, api_.ReviewToken(token, AudienceOf(use)));
  const auto account = AccountOfUser(review.user);
  if (!account.has_value()) {
    return MakeError(
        absl::StatusCode::kPermissionDenied, "ACCOUNT_NOT_PERMITTED",
        absl::StrCat("the token is that of '", review.user, "', which is no service account"));
  }
  access::PodIdentity identity;
  identity.account = account->Text();
  identity.expires = expires;
  if (use == access::PodUse::kClient) {
    TY_ASSIGN_OR_RETURN(identity.user, UserOf(*account, options_.users));
  } else {
    TY_RETURN_IF_ERROR(CheckMayBeWorker(*account, options_.workers));
    TY_ASSIGN_OR_RETURN(identity.workers, WorkersOf(*account, review));
  }
  return identity;
}

std::vector<std::function<void()>> Reviewer::Take(Waiting waiting, Answer answer) {
  const absl::Duration now = clock_.Uptime();
  const bool is_accepted = answer.ok();
  Answers& answers = is_accepted ? accepted_ : refused_;
  const size_t most = is_accepted ? limits_.accepted_max : limits_.refused_max;
  if (answers.size() >= most) {
    std::erase_if(answers, [now](const auto& each) { return each.second.until <= now; });
  }
  // The keys are digests, so that nobody chooses who goes.
  if (answers.size() >= most) answers.erase(answers.begin());
  absl::Duration kept = is_accepted ? limits_.accepted_kept : limits_.refused_kept;
  if (is_accepted) kept = std::min(kept, answer->expires - clock_.Now());
  answers.insert_or_assign(std::move(waiting.key), Kept{std::move(answer), now + kept});
  return std::move(waiting.calls);
}

std::vector<std::function<void()>> Reviewer::GiveUp() {
  std::vector<std::function<void()>> calls;
  for (Waiting& each : waiting_) {
    std::move(each.calls.begin(), each.calls.end(), std::back_inserter(calls));
  }
  waiting_.clear();
  return calls;
}

void Reviewer::Run() {
  while (true) {
    std::string token;
    access::PodUse use = access::PodUse::kClient;
    std::vector<std::function<void()>> calls;
    bool is_over = false;
    {
      const MutexLock lock(&mutex_);
      while (waiting_.empty() && !is_stopping_) changed_.Wait(&mutex_);
      is_over = is_stopping_;
      if (is_over) {
        calls = GiveUp();
      } else {
        token = waiting_.front().token;
        use = waiting_.front().use;
      }
    }
    for (const auto& call : calls) call();
    if (is_over) return;
    Answer answer = Decide(token, use);
    const bool is_refused = IsRefusal(answer.status());
    {
      const MutexLock lock(&mutex_);
      if (answer.ok() || is_refused) {
        if (!failure_.ok()) LogInfo("the API server of the cluster answers again");
        failure_ = absl::OkStatus();
        Waiting first = std::move(waiting_.front());
        waiting_.pop_front();
        calls = Take(std::move(first), std::move(answer));
      } else {
        if (failure_.ok() && !is_stopping_) {
          LogWarning("tokens of pods cannot be verified",
                     {{"error", std::string(answer.status().message())}});
        }
        failure_ = ClusterUnavailable(answer.status().message());
        failed_until_ = clock_.Uptime() + limits_.failure_kept;
        calls = GiveUp();
      }
    }
    for (const auto& call : calls) call();
    if (!is_refused) continue;
    const MutexLock lock(&mutex_);
    if (!is_stopping_) stopped_.WaitWithTimeout(&mutex_, limits_.pause_after_refusal);
  }
}

}  // namespace trainyard::kubernetes
