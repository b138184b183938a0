// Runs the thread that derives messages, and those that send them.
#include "server/notify/courier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/tls/digest.h"
#include "server/notify/derive.h"
#include "server/notify/mail.h"
#include "server/notify/message.h"

namespace trainyard::notify {
namespace {

// Events of which nothing has to be told are noted in steps of this, so that they cost no commit.
constexpr int64_t kUntoldEventsMax = 10'000;
constexpr absl::Duration kIdleWait = absl::Seconds(30);
constexpr absl::Duration kStoreRetry = absl::Seconds(5);
constexpr int kRetryFactor = 4;

std::string ReceiverOf(const store::DeliveryRecord& delivery) {
  return absl::StrCat(delivery.user, "\n", delivery.webhook, "\n", delivery.mail);
}

}  // namespace

absl::Duration RetryDelay(int tries, absl::Duration first, absl::Duration last) {
  absl::Duration delay = first;
  for (int i = 1; i < tries && delay < last; ++i) delay *= kRetryFactor;
  return std::min(delay, last);
}

Courier::Courier(Options options, store::NotifyStore& store, store::Store& events,
                 const runtime::Board& board, Clock& clock)
    : options_(std::move(options)), store_(store), events_(events), board_(board), clock_(clock) {}

Courier::~Courier() {
  Stop();
}

void Courier::Start() {
  threads_.emplace_back([this] { Derive(); });
  for (int i = 0; i < kSenders; ++i) threads_.emplace_back([this] { Deliver(); });
}

void Courier::Stop() {
  is_stopping_ = true;
  {
    const MutexLock lock(&mutex_);
    has_events_.SignalAll();
    has_due_.SignalAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  threads_.clear();
  // The next start has nothing to read again.
  if (last_event_ > stored_event_ && store_.AddDeliveries({}, last_event_).ok()) {
    stored_event_ = last_event_;
  }
}

void Courier::Take(const core::Turn& turn) {
  if (std::none_of(turn.delta.events.begin(), turn.delta.events.end(), IsTold)) return;
  const MutexLock lock(&mutex_);
  for (const core::EventRecord& event : turn.delta.events) {
    if (IsTold(event)) taken_.push_back(event);
  }
  has_events_.Signal();
}

// Works off what was committed while nobody listened.
absl::Status Courier::CatchUp() {
  if (!has_begun_) {
    TY_ASSIGN_OR_RETURN(const std::optional<int64_t> last, store_.LastEvent());
    // A restored copy of the jobs may be older than this store. Later, events go on from the last
    // one that was worked off: what was told before it would be told again.
    last_event_ = std::min(last.value_or(options_.next_event - 1), options_.next_event - 1);
    if (!last.has_value() || *last != last_event_) {
      TY_RETURN_IF_ERROR(store_.AddDeliveries({}, last_event_));
    }
    stored_event_ = last_event_;
    has_begun_ = true;
  }
  while (!is_stopping_) {
    TY_ASSIGN_OR_RETURN(const auto page, events_.ListEvents("", last_event_, store::kEventPageMax));
    if (page.empty()) break;
    TY_RETURN_IF_ERROR(WorkOff(page));
  }
  return absl::OkStatus();
}

absl::Status Courier::WorkOff(const std::vector<core::EventRecord>& events) {
  std::vector<store::DeliveryRecord> deliveries;
  int64_t last = last_event_;
  for (const core::EventRecord& event : events) {
    if (event.sequence <= last_event_) continue;
    last = std::max(last, event.sequence);
    if (!IsTold(event)) continue;
    const auto subject = SubjectOf(event, board_);
    if (!subject.has_value()) continue;
    const std::string& user = subject->job.submission->user;
    if (!options_.is_welcome(user)) continue;
    TY_ASSIGN_OR_RETURN(auto targets, store_.ListTargets(user));
    const auto of_spec = TargetsOfSpec(subject->job, targets);
    targets.insert(targets.end(), of_spec.begin(), of_spec.end());
    const auto found = DeliveriesOf(event, *subject, targets);
    deliveries.insert(deliveries.end(), found.begin(), found.end());
  }
  if (!deliveries.empty() || last - stored_event_ >= kUntoldEventsMax) {
    TY_RETURN_IF_ERROR(store_.AddDeliveries(deliveries, last));
    stored_event_ = last;
  }
  last_event_ = last;
  if (deliveries.empty()) return absl::OkStatus();
  const MutexLock lock(&mutex_);
  ++changes_;
  has_due_.SignalAll();
  return absl::OkStatus();
}

void Courier::Derive() {
  absl::Status status = CatchUp();
  bool is_caught_up = status.ok();
  while (!is_stopping_) {
    std::vector<core::EventRecord> events;
    {
      const MutexLock lock(&mutex_);
      if (!status.ok()) {
        const absl::Duration again = clock_.Uptime() + kStoreRetry;
        for (absl::Duration left = kStoreRetry; left > absl::ZeroDuration() && !is_stopping_;
             left = again - clock_.Uptime()) {
          has_events_.WaitWithTimeout(&mutex_, left);
        }
      } else if (taken_.empty()) {
        has_events_.WaitWithTimeout(&mutex_, kIdleWait);
      }
      if (is_stopping_) return;
      // The events that were taken until now are in the history, too, which is read first if it was
      // not yet.
      if (is_caught_up) events.assign(taken_.begin(), taken_.end());
      taken_.clear();
    }
    status = is_caught_up ? WorkOff(events) : CatchUp();
    // The history is read again for all that could not be written now.
    is_caught_up = status.ok();
    if (!status.ok()) {
      LogWarning("word of jobs cannot be stored; trying again",
                 {{"error", std::string(status.message())}});
    }
  }
}

std::optional<store::DeliveryRecord> Courier::TakeDue() {
  int64_t seen = 0;
  {
    const MutexLock lock(&mutex_);
    seen = changes_;
  }
  auto due = store_.Due(NowUs());
  if (!due.ok()) return std::nullopt;
  const MutexLock lock(&mutex_);
  // Another thread may have sent one of these since the store was read. The caller finds the
  // change, and does not wait before it asks again.
  if (changes_ != seen) return std::nullopt;
  for (store::DeliveryRecord& delivery : *due) {
    if (busy_receivers_.contains(ReceiverOf(delivery))) continue;
    if (delivery.tries > 0 && busy_retries_ >= kSendersOfRetries) continue;
    const auto of_user = busy_users_.find(delivery.user);
    if (of_user != busy_users_.end() && of_user->second >= kSendersOfUser) continue;
    ++busy_users_[delivery.user];
    if (delivery.tries > 0) ++busy_retries_;
    busy_receivers_.insert(ReceiverOf(delivery));
    return std::move(delivery);
  }
  return std::nullopt;
}

void Courier::Deliver() {
  int64_t seen = -1;
  while (!is_stopping_) {
    {
      const MutexLock lock(&mutex_);
      seen = changes_;
    }
    std::optional<store::DeliveryRecord> delivery = TakeDue();
    if (delivery.has_value()) {
      Send(*std::move(delivery));
      continue;
    }
    absl::Duration wait = kIdleWait;
    if (const auto next = store_.NextDue(NowUs()); next.ok() && next->has_value()) {
      wait = std::min(wait, absl::Microseconds(**next - NowUs()));
    }
    const MutexLock lock(&mutex_);
    if (changes_ == seen && !is_stopping_ && wait > absl::ZeroDuration()) {
      has_due_.WaitWithTimeout(&mutex_, wait);
    }
  }
}

Sent Courier::SendOnce(const store::DeliveryRecord& delivery) {
  if (delivery.webhook.empty()) {
    if (const absl::Status allowed = CheckMail(delivery.mail, options_.rules); !allowed.ok()) {
      return {false, false, std::string(allowed.message())};
    }
    return SendMail(options_.sendmail, MailOf(delivery.message, delivery.mail, options_.mail_from),
                    is_stopping_);
  }
  // The key may belong to a target of another name that has the same URL.
  std::string key;
  if (const auto targets = store_.ListTargets(delivery.user); targets.ok()) {
    for (const store::TargetRecord& target : *targets) {
      const bool is_meant = delivery.target.empty() || delivery.target == target.name;
      if (is_meant && target.webhook == delivery.webhook) key = target.signing_key;
    }
  }
  const std::string event = delivery.event.empty() ? "test" : delivery.event;
  const auto headers =
      WebhookHeaders(delivery.id, event, absl::ToUnixSeconds(clock_.Now()), delivery.message, key);
  return PostWebhook(delivery.webhook, headers, delivery.message, options_.rules, is_stopping_);
}

void Courier::Send(store::DeliveryRecord delivery) {
  const std::string receiver = ReceiverOf(delivery);
  const bool is_retry = delivery.tries > 0;
  const Sent sent = SendOnce(delivery);
  const bool is_cut_off = is_stopping_ && !sent.is_delivered;
  if (!is_cut_off) {
    ++delivery.tries;
    delivery.last_try_us = NowUs();
    delivery.result = sent.result;
    const absl::Duration age = absl::Microseconds(delivery.last_try_us - delivery.create_us);
    if (sent.is_delivered) {
      delivery.state = store::DeliveryState::kDelivered;
    } else if (!sent.may_pass || age >= options_.give_up_after) {
      delivery.state = store::DeliveryState::kGivenUp;
      LogWarning("a notification was given up",
                 {{"user", delivery.user},
                  {"job", JobName(delivery.job)},
                  {"address", ShownAddress(delivery.webhook, delivery.mail)},
                  {"result", delivery.result}});
    } else {
      const absl::Duration delay =
          RetryDelay(delivery.tries, options_.first_retry, options_.last_retry);
      delivery.next_try_us = delivery.last_try_us + absl::ToInt64Microseconds(delay);
    }
    if (const absl::Status written = store_.Update(delivery); !written.ok()) {
      LogWarning("the end of a notification cannot be stored; it is sent again",
                 {{"error", std::string(written.message())}});
      const MutexLock lock(&mutex_);
      if (!is_stopping_) has_due_.WaitWithTimeout(&mutex_, options_.first_retry);
    }
  }
  const MutexLock lock(&mutex_);
  busy_receivers_.erase(receiver);
  if (is_retry) --busy_retries_;
  if (--busy_users_[delivery.user] == 0) busy_users_.erase(delivery.user);
  ++changes_;
  has_due_.SignalAll();
}

store::DeliveryRecord Courier::Test(const store::TargetRecord& target) {
  Word word;
  word.delivery = absl::BytesToHexString(tls::SecretBytes(16));
  word.event = "test";
  word.time_us = NowUs();
  word.user = target.user;
  store::DeliveryRecord delivery;
  delivery.id = word.delivery;
  delivery.user = target.user;
  delivery.target = target.name;
  delivery.webhook = target.webhook;
  delivery.mail = target.mail;
  delivery.message = WebhookBody(word);
  delivery.create_us = word.time_us;
  const Sent sent = SendOnce(delivery);
  delivery.tries = 1;
  delivery.last_try_us = NowUs();
  delivery.result = sent.result;
  delivery.state =
      sent.is_delivered ? store::DeliveryState::kDelivered : store::DeliveryState::kGivenUp;
  return delivery;
}

}  // namespace trainyard::notify
