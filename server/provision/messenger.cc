// Orders are carried out one after the other, and the list is fetched in between.
#include "server/provision/messenger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "server/provision/core/observe.h"
#include "server/provision/core/provider.h"

namespace trainyard::provision {
namespace {

// The core gives up a pilot that no list shows after a shorter time, and asks for it no more.
constexpr absl::Duration kDoubtMax = absl::Microseconds(2 * kSubmissionSettlesUs);

}  // namespace

Messenger::Messenger(std::unique_ptr<std::atomic<bool>> is_stopping,
                     std::unique_ptr<Cluster> cluster, int32_t nodes, Invite invite,
                     absl::Duration list_every)
    : is_stopping_(std::move(is_stopping)),
      cluster_(std::move(cluster)),
      nodes_(nodes),
      invite_(std::move(invite)),
      list_every_(list_every),
      thread_([this] { Run(); }) {}

Messenger::~Messenger() {
  Stop();
  thread_.join();
}

void Messenger::SetMode(Mode mode) {
  const MutexLock lock(&mutex_);
  mode_ = std::max(mode_, mode);
  changed_.SignalAll();
}

void Messenger::Retire() {
  SetMode(Mode::kRetires);
}

void Messenger::Finish() {
  SetMode(Mode::kFinishes);
}

void Messenger::Stop() {
  *is_stopping_ = true;
  SetMode(Mode::kRetires);
}

bool Messenger::IsOver() const {
  const MutexLock lock(&mutex_);
  return is_over_;
}

void Messenger::TakeOver(Messenger& other) {
  std::deque<Order> orders;
  ProviderNews news;
  {
    const MutexLock lock(&other.mutex_);
    orders.swap(other.orders_);
    news = std::exchange(other.news_, {});
  }
  const MutexLock lock(&mutex_);
  for (Order& order : orders) PostLocked(std::move(order));
  for (SubmitResult& result : news.submitted) news_.submitted.push_back(std::move(result));
  if (!news_.listing.has_value()) news_.listing = std::move(news.listing);
}

void Messenger::Submit(const std::string& pilot) {
  Post({Order::Kind::kSubmit, pilot});
}

void Messenger::Cancel(const std::string& foreign_id) {
  Post({Order::Kind::kCancel, foreign_id});
}

void Messenger::DropTokens(const std::string& pilot) {
  Post({Order::Kind::kDropTokens, pilot});
}

void Messenger::Post(Order order) {
  const MutexLock lock(&mutex_);
  PostLocked(std::move(order));
}

void Messenger::PostLocked(Order order) {
  if (order.kind == Order::Kind::kCancel && !cancels_.insert(order.what).second) return;
  orders_.push_back(std::move(order));
  changed_.Signal();
}

void Messenger::Watch(std::vector<std::string> foreign_ids, std::set<std::string> unanswered) {
  const MutexLock lock(&mutex_);
  watched_ = Watched{std::move(foreign_ids), std::move(unanswered)};
}

ProviderNews Messenger::TakeNews() {
  const MutexLock lock(&mutex_);
  return std::exchange(news_, {});
}

void Messenger::Run() {
  absl::Duration listed = -absl::InfiniteDuration();
  while (true) {
    size_t orders = 0;
    std::optional<Watched> watched;
    {
      const MutexLock lock(&mutex_);
      if (orders_.empty() && mode_ == Mode::kWorks) {
        changed_.WaitWithTimeout(&mutex_, list_every_ / 4);
      }
      if (mode_ == Mode::kRetires || (mode_ == Mode::kFinishes && orders_.empty())) {
        is_over_ = true;
        return;
      }
      orders = orders_.size();
      if (mode_ == Mode::kWorks) watched = watched_;
    }
    // Those that come meanwhile wait for the next turn, so that they do not hold up the list.
    while (orders > 0 && CarryNext()) --orders;
    const absl::Duration now = Clock::Real()->Uptime();
    if (orders > 0 || !watched.has_value() || now - listed < list_every_) continue;
    listed = now;
    List(*watched);
  }
}

bool Messenger::CarryNext() {
  Order order;
  {
    const MutexLock lock(&mutex_);
    if (mode_ == Mode::kRetires || orders_.empty()) return false;
    order = std::move(orders_.front());
    orders_.pop_front();
    if (order.kind == Order::Kind::kCancel) cancels_.erase(order.what);
  }
  Carry(order);
  return true;
}

void Messenger::List(const Watched& watched) {
  const absl::Duration begin = Clock::Real()->Uptime();
  Listing listing = cluster_->List(watched.foreign_ids);
  listing.begin_us = absl::ToInt64Microseconds(begin);
  std::vector<SubmitResult> results = CancelHopeless(watched.unanswered, listing);
  const MutexLock lock(&mutex_);
  for (SubmitResult& result : results) news_.submitted.push_back(std::move(result));
  news_.listing = std::move(listing);
}

std::vector<SubmitResult> Messenger::CancelHopeless(const std::set<std::string>& unanswered,
                                                    Listing& listing) {
  const absl::Duration now = Clock::Real()->Uptime();
  std::erase_if(doubtful_, [now](const auto& entry) { return now - entry.second > kDoubtMax; });
  std::vector<SubmitResult> results;
  std::erase_if(listing.pilots, [&](const ListedPilot& listed) {
    const bool is_there = !HasEnded(listed.state) && listed.state != ForeignState::kLeaving;
    if (!is_there) return false;
    if (!unanswered.contains(listed.name) && !doubtful_.contains(listed.name)) return false;
    const auto lacks_tokens = cluster_->LacksTokens(listed.name);
    if (lacks_tokens.ok() && !*lacks_tokens) {
      doubtful_.erase(listed.name);
      return false;
    }
    const absl::Status cancelled =
        lacks_tokens.ok() ? cluster_->Cancel(listed.foreign_id) : lacks_tokens.status();
    // Whoever is not told of it does not adopt it, and the next list shows it again.
    if (!cancelled.ok()) {
      results.push_back(
          {listed.name, SubmitResult::Kind::kUnknown, "",
           absl::StrCat("it is not known whether it has its tokens: ", cancelled.message())});
      return true;
    }
    results.push_back({listed.name, SubmitResult::Kind::kRefused, "",
                       "it was interrupted before the tokens of the workers were there"});
    return false;
  });
  return results;
}

void Messenger::Carry(const Order& order) {
  if (order.kind == Order::Kind::kDropTokens) return cluster_->DropTokens(order.what);
  if (order.kind == Order::Kind::kCancel) {
    const absl::Status cancelled = cluster_->Cancel(order.what);
    if (!cancelled.ok()) {
      LogWarning("a pilot cannot be cancelled now",
                 {{"id", order.what}, {"error", std::string(cancelled.message())}});
    }
    return;
  }
  SubmitResult result;
  std::vector<std::string> tokens;
  for (int32_t node = 0; node < nodes_; ++node) {
    auto token = invite_(PilotWorkerName(order.what, nodes_, node));
    if (!token.ok()) {
      result = {order.what, SubmitResult::Kind::kRefused, "",
                std::string(token.status().message())};
      break;
    }
    tokens.push_back(*std::move(token));
  }
  if (result.pilot.empty()) result = cluster_->Submit(order.what, tokens);
  if (result.kind == SubmitResult::Kind::kUnknown) {
    doubtful_[order.what] = Clock::Real()->Uptime();
  }
  const MutexLock lock(&mutex_);
  news_.submitted.push_back(std::move(result));
}

}  // namespace trainyard::provision
