// Carries orders to one cluster and news back, on a thread of its own: clusters answer slowly, or
// not at all, and one must not hold up the others.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "server/provision/cluster.h"
#include "server/provision/core/inputs.h"

namespace trainyard::provision {

// The messenger of one provider. It is thread-safe.
class Messenger {
 public:
  // Makes the join token of a worker. Called on the messenger's thread.
  using Invite = std::function<absl::StatusOr<std::string>(const std::string& worker)>;

  // The cluster is asked for its list this often. Its calls end soon once `is_stopping` is true.
  Messenger(std::unique_ptr<std::atomic<bool>> is_stopping, std::unique_ptr<Cluster> cluster,
            int32_t nodes, Invite invite, absl::Duration list_every);
  // Stops, and waits for that.
  ~Messenger();

  void Submit(const std::string& pilot);
  // An order that waits already is not repeated.
  void Cancel(const std::string& foreign_id);
  void DropTokens(const std::string& pilot);
  // Says which allocations to look harder for, and which pilots were asked for without an answer
  // that is known. The cluster is not asked for its list before the first call.
  void Watch(std::vector<std::string> foreign_ids, std::set<std::string> unanswered);
  // Returns what has come since the last call.
  ProviderNews TakeNews();

  // None of these waits; IsOver tells when it is done. No list is asked for any more.
  //
  // Ends after the call that is under way. Orders still come, and wait for TakeOver.
  void Retire();
  // Ends once all orders are carried out: nobody will take them over.
  void Finish();
  // Ends the call under way as well. Orders are given up: the server stops.
  void Stop();
  bool IsOver() const;
  // Takes the orders and the news of a messenger that has retired.
  void TakeOver(Messenger& other);

 private:
  enum class Mode { kWorks, kFinishes, kRetires };

  struct Order {
    enum class Kind { kSubmit, kCancel, kDropTokens };
    Kind kind = Kind::kSubmit;
    std::string what;
  };

  struct Watched {
    std::vector<std::string> foreign_ids;
    std::set<std::string> unanswered;
  };

  void Run();
  // Carries out the next order. Returns false if there is none, or none is to be carried out.
  bool CarryNext();
  void Carry(const Order& order);
  void List(const Watched& watched);
  void Post(Order order);
  void PostLocked(Order order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetMode(Mode mode);
  // Cancels those unanswered pilots of a list that can only fail, and takes from the list those of
  // which the cluster does not tell. Returns what became of them.
  std::vector<SubmitResult> CancelHopeless(const std::set<std::string>& unanswered,
                                           Listing& listing);

  const std::unique_ptr<std::atomic<bool>> is_stopping_;  // the cluster borrows it
  const std::unique_ptr<Cluster> cluster_;
  const int32_t nodes_;
  const Invite invite_;
  const absl::Duration list_every_;

  mutable Mutex mutex_;
  CondVar changed_;
  Mode mode_ ABSL_GUARDED_BY(mutex_) = Mode::kWorks;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> cancels_ ABSL_GUARDED_BY(mutex_);  // those in orders_
  std::optional<Watched> watched_ ABSL_GUARDED_BY(mutex_);
  ProviderNews news_ ABSL_GUARDED_BY(mutex_);
  // The pilots that this messenger has asked for without an answer, and when. Only its own thread
  // uses them, and a list may show them before the keeper has heard of that.
  std::map<std::string, absl::Duration> doubtful_;
  std::thread thread_;
};

}  // namespace trainyard::provision
