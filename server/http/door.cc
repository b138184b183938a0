// Counts connections by client, and fills in the table of routes.
#include "server/http/door.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "server/http/checkpoint_file.h"
#include "server/http/event_stream.h"
#include "server/http/routes.h"
#include "server/http/rpc_methods.h"
#include "server/http/session.h"
#include "server/http/unary_call.h"

namespace trainyard::http {
namespace {

constexpr absl::Duration kWarningInterval = absl::Minutes(1);
// The end of the last calls is looked for this often.
constexpr absl::Duration kEndPause = absl::Milliseconds(5);

// Limits are counted by this.
std::string KeyOf(const access::Peer& peer) {
  return peer.address.empty() ? absl::StrCat("user ", peer.user) : peer.address;
}

}  // namespace

class Door::Impl {
 public:
  explicit Impl(DoorOptions options)
      : options_(std::move(options)), methods_(RpcMethods()), work_(io_.get_executor()) {
    AddRoutes();
    env_.limits = options_.limits;
    env_.is_host = options_.is_host;
    env_.connect = [this](const Arrival& arrival) {
      return options_.connect(arrival.peer, arrival.is_known);
    };
    thread_ = std::thread([this] { io_.run(); });
  }

  ~Impl() {
    boost::asio::post(io_, [this] {
      is_stopping_ = true;
      for (const auto& session : std::set<std::shared_ptr<Session>>(sessions_)) session->Close();
    });
    // Handlers that wait for the services hear that their clients have gone, and let go.
    while (env_.exchanges > 0) Clock::Real()->SleepFor(kEndPause);
    work_.reset();
    io_.stop();
    thread_.join();
  }

  void Take(Arrival arrival) {
    boost::asio::post(io_, [this, held = std::make_shared<Arrival>(std::move(arrival))] {
      Start(std::move(*held));
    });
  }

  void Stop() {
    boost::asio::post(io_, [this] {
      is_stopping_ = true;
      for (const auto& session : std::set<std::shared_ptr<Session>>(sessions_)) session->Stop();
    });
  }

  size_t connections() const { return connections_; }

 private:
  void AddRoutes() {
    const RpcMethod* get_checkpoint = nullptr;
    const RpcMethod* download = nullptr;
    for (const RpcMethod& method : methods_) {
      const std::string& name = method.descriptor->name();
      if (name == "GetCheckpoint") get_checkpoint = &method;
      if (name == "DownloadCheckpoint") download = &method;
      std::vector<std::string> verbs = {"POST"};
      if (method.is_read) verbs.insert(verbs.begin(), "GET");
      routes_.Add(method.path, std::move(verbs), [&method](const ExchangePtr& exchange) {
        return method.is_stream ? ServeEvents(method, exchange) : ServeUnary(method, exchange);
      });
    }
    if (get_checkpoint == nullptr || download == nullptr) return;
    routes_.Add(kFilesPath, {"GET"}, [get_checkpoint, download](const ExchangePtr& exchange) {
      ServeCheckpointFile(*get_checkpoint, *download, exchange);
    });
  }

  void Start(Arrival arrival) {
    if (is_stopping_) return;
    const std::string key = KeyOf(arrival.peer);
    size_t& own = by_client_[key];
    if (own >= options_.limits.connections_of_client ||
        sessions_.size() >= options_.limits.connections) {
      if (own == 0) by_client_.erase(key);
      return Warn(key);
    }
    ++own;
    ++connections_;
    // A session may end before it is in the set.
    const auto is_over = std::make_shared<bool>(false);
    const auto held = std::make_shared<std::weak_ptr<Session>>();
    auto session = StartSession(std::move(arrival), env_, [this, key, is_over, held] {
      *is_over = true;
      --connections_;
      if (--by_client_.at(key) == 0) by_client_.erase(key);
      sessions_.erase(held->lock());
    });
    if (*is_over) return;
    *held = session;
    sessions_.insert(std::move(session));
  }

  void Warn(const std::string& client) {
    const absl::Duration now = Clock::Real()->Uptime();
    if (now - warned_ < kWarningInterval) return;
    warned_ = now;
    LogWarning("too many connections of HTTP: new ones are closed until others end",
               {{"client", client}, {"all", absl::StrCat(sessions_.size())}});
  }

  const DoorOptions options_;
  const std::vector<RpcMethod> methods_;
  Routes routes_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  SessionEnv env_{io_, routes_, {}, {}, {}};
  std::atomic<size_t> connections_ = 0;
  // Only the thread uses these.
  bool is_stopping_ = false;
  std::set<std::shared_ptr<Session>> sessions_;
  std::map<std::string, size_t> by_client_;
  absl::Duration warned_ = -absl::InfiniteDuration();
  std::thread thread_;
};

Door::Door(DoorOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Door::~Door() = default;

void Door::Take(UniqueFd socket, access::Peer peer, std::shared_ptr<std::atomic<bool>> is_known) {
  impl_->Take({std::move(socket), std::move(peer), std::move(is_known)});
}

void Door::Stop() {
  impl_->Stop();
}

size_t Door::connections() const {
  return impl_->connections();
}

}  // namespace trainyard::http
