// Counts connections by client, and fills in the table of routes.
#include "server/http/door.h"

#include <arpa/inet.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <future>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "server/http/event_cache.h"
#include "server/http/event_stream.h"
#include "server/http/json.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/http/rpc_methods.h"
#include "server/http/session.h"
#include "server/http/sign_in.h"
#include "server/http/stored_file.h"
#include "server/http/unary_call.h"

namespace trainyard::http {
namespace {

constexpr absl::Duration kWarningInterval = absl::Minutes(1);
// Large requests are read by so many threads.
constexpr size_t kReaders = 2;
constexpr size_t kEventCacheBytes = size_t{8} << 20;
// The end of the last calls is looked for this often.
constexpr absl::Duration kEndPause = absl::Milliseconds(5);

// Limits are counted by this. Whoever has one address of IPv6 has the 2^64 of its network.
std::string ClientOf(const access::Peer& peer) {
  if (peer.address.empty()) return absl::StrCat("user ", peer.user);
  in6_addr address{};
  if (inet_pton(AF_INET6, peer.address.c_str(), &address) != 1 || IN6_IS_ADDR_V4MAPPED(&address)) {
    return peer.address;
  }
  std::fill(address.s6_addr + 8, address.s6_addr + 16, uint8_t{0});
  char network[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, &address, network, sizeof(network));
  return absl::StrCat(network, "/64");
}

}  // namespace

class Door::Impl {
 public:
  explicit Impl(DoorOptions options)
      : options_(std::move(options)), methods_(RpcMethods()), work_(io_.get_executor()) {
    AddRoutes();
    env_.is_host = options_.is_host;
    env_.guard = options_.guard;
    env_.connect = [this](const Arrival& arrival) {
      return options_.connect(arrival.peer, arrival.is_known);
    };
    thread_ = std::thread([this] { io_.run(); });
  }

  ~Impl() {
    std::promise<void> closed;
    boost::asio::post(io_, [this, &closed] {
      is_stopping_ = true;
      for (const auto& session : Sessions()) session->Close();
      closed.set_value();
    });
    closed.get_future().wait();
    // Handlers that wait for the services hear that their clients have gone, and let go.
    while (env_.exchanges > 0) Clock::Real()->SleepFor(kEndPause);
    readers_.join();
    // The last handlers hold connections, which use what is destroyed here, so they are run.
    work_.reset();
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
      for (const auto& session : Sessions()) session->Stop();
    });
  }

  size_t connections() const { return connections_; }

 private:
  struct Open {
    std::shared_ptr<Session> session;
    std::string client;
  };

  // Sessions that end leave the map, so it is not looked through while they are told to.
  std::vector<std::shared_ptr<Session>> Sessions() const {
    std::vector<std::shared_ptr<Session>> sessions;
    for (const auto& [number, open] : sessions_) sessions.push_back(open.session);
    return sessions;
  }

  void AddRoutes() {
    const RpcMethod* list_attempts = nullptr;
    for (const RpcMethod& method : methods_) {
      const std::string& name = method.descriptor->name();
      if (name == "GetCheckpoint") file_calls_.get_checkpoint = &method;
      if (name == "DownloadCheckpoint") file_calls_.download_checkpoint = &method;
      if (name == "GetOutputs") file_calls_.get_outputs = &method;
      if (name == "DownloadOutput") file_calls_.download_output = &method;
      if (name == "WhoAmI") SetCheck(method);
      if (name == "WhoAmI" && options_.write_metrics != nullptr) AddMetrics(method);
      if (name == "ListAttempts") list_attempts = &method;
      std::vector<std::string> verbs = {"POST"};
      if (method.is_read) verbs.insert(verbs.begin(), "GET");
      const auto serve = [this, &method](const ExchangePtr& exchange) {
        if (!method.is_stream) return ServeUnary(method, exchange);
        ServeEvents(method, list_attempts_, event_cache_, exchange);
      };
      routes_.Add(method.path, std::move(verbs), [this, serve](const ExchangePtr& exchange) {
        // A query has no more bytes than the headers may have.
        if (exchange->body_size() <= options_.limits.own_thread_bytes) return serve(exchange);
        boost::asio::post(readers_, [serve, exchange] { serve(exchange); });
      });
    }
    list_attempts_ = list_attempts;
    AddPage(routes_);
    AddSignIn(routes_);
    TY_CHECK(env_.check_caller != nullptr);
    if (!file_calls_.is_complete()) return;
    routes_.Add(kFilesPath, {"GET"},
                [this](const ExchangePtr& exchange) { ServeFile(file_calls_, exchange); });
  }

  void AddMetrics(const RpcMethod& who_am_i) {
    routes_.Add(kMetricsPath, {"GET"}, [this, &who_am_i](const ExchangePtr& exchange) {
      ServeMetrics(who_am_i, options_.write_metrics, exchange);
    });
  }

  // Any call will do that is for users of all roles, and has nothing to read.
  void SetCheck(const RpcMethod& who_am_i) {
    env_.check_caller = [&who_am_i](const ExchangePtr& exchange,
                                    std::function<void(const absl::Status&)> done) {
      CallUnary(who_am_i, *NewMessage(*who_am_i.descriptor->input_type()), exchange,
                [done = std::move(done)](const absl::StatusOr<MessagePtr>& answer) {
                  done(answer.status());
                });
    };
  }

  size_t CountOf(const std::string& client) const {
    const auto known = by_client_.find(client);
    return known == by_client_.end() ? 0 : known->second;
  }

  // Returns the oldest connection of which `may_go` is true, or null.
  template <typename F>
  std::shared_ptr<Session> Oldest(const F& may_go) const {
    for (const auto& [number, open] : sessions_) {
      if (may_go(open)) return open.session;
    }
    return nullptr;
  }

  // Ends a connection if a new one of the client has no place otherwise. Returns false if there is
  // none that may be ended.
  bool MakeRoom(const std::string& client, bool is_remote) {
    std::shared_ptr<Session> victim;
    const size_t own = CountOf(client);
    if (own >= options_.limits.connections_of_client) {
      // Many people may share an address, and those without a token must not keep the others out.
      // A user of this host is in nobody's way but its own.
      if (!is_remote) return false;
      victim = Oldest(
          [&](const Open& open) { return open.client == client && !open.session->is_admitted(); });
    } else if (sessions_.size() >= options_.limits.connections) {
      victim = Oldest([](const Open& open) { return !open.session->is_admitted(); });
      if (victim == nullptr) {
        // HTTP lets a server end a connection that waits for a request, and clients open another.
        // A request of which a part is missing was not served.
        victim = Oldest([&](const Open& open) {
          return open.session->is_idle() && CountOf(open.client) > own + 1;
        });
      }
    } else {
      return true;
    }
    if (victim == nullptr) return false;
    victim->Close();
    return true;
  }

  void Start(Arrival arrival) {
    if (is_stopping_) return;
    arrival.client = ClientOf(arrival.peer);
    const std::string client = arrival.client;
    if (!MakeRoom(client, !arrival.peer.address.empty())) return Warn(client);
    ++by_client_[client];
    ++connections_;
    // A session may end before it is in the map.
    const auto is_over = std::make_shared<bool>(false);
    const uint64_t number = ++started_;
    auto session = StartSession(std::move(arrival), env_, [this, client, is_over, number] {
      *is_over = true;
      --connections_;
      if (--by_client_.at(client) == 0) by_client_.erase(client);
      sessions_.erase(number);
    });
    if (!*is_over) sessions_.emplace(number, Open{std::move(session), client});
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
  SessionEnv env_{io_,
                  routes_,
                  options_.limits,
                  {},
                  {},
                  {},
                  {},
                  BodyBytes(options_.limits.all_body_bytes, options_.limits.body_bytes_of_client)};
  boost::asio::thread_pool readers_{kReaders};
  const RpcMethod* list_attempts_ = nullptr;
  FileCalls file_calls_;
  EventCache event_cache_{kEventCacheBytes};
  std::atomic<size_t> connections_ = 0;
  // Only the thread uses these.
  bool is_stopping_ = false;
  uint64_t started_ = 0;
  std::map<uint64_t, Open> sessions_;  // the oldest one is first
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
