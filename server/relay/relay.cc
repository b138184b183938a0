// Runs an epoll loop with edges: a descriptor is announced when it becomes readable or writable,
// and the connection is then served until it blocks or its turn is over.
#include "server/relay/relay.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"

namespace trainyard::relay {
namespace {

constexpr uint64_t kWake = 0;
constexpr uint32_t kEdges = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr size_t kEventsMax = 256;
constexpr size_t kScratchBytes = 64 * 1024;
constexpr absl::Duration kOverdueInterval = absl::Seconds(1);
constexpr absl::Duration kWarningInterval = absl::Minutes(1);
constexpr absl::Duration kStopGrace = absl::Seconds(1);

// Limits are counted by this: the address of a client of another host, or else its user.
const std::string& KeyOf(const ClientSide& client) {
  const access::Peer& peer = client.peer();
  return peer.address.empty() ? peer.user : peer.address;
}

}  // namespace

Relay::Relay(Clock& clock, Open open, const Limits& limits)
    : clock_(clock),
      open_(std::move(open)),
      limits_(limits),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      scratch_(kScratchBytes) {
  TY_CHECK(epoll_.valid() && wake_.valid());
  TY_CHECK(Watch(wake_.get(), EPOLLIN, kWake));
  thread_ = std::thread([this] { Run(); });
}

Relay::~Relay() {
  {
    const MutexLock lock(&mutex_);
    stops_ = true;
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void Relay::Take(std::unique_ptr<ClientSide> client) {
  if (!HasRoom(KeyOf(*client))) return;
  {
    const MutexLock lock(&mutex_);
    // The thread takes them faster than a peer can open them, unless it has no processor.
    if (stops_ || accepted_.size() >= limits_.handshakes) return;
    size_t& accepted = accepted_of_[KeyOf(*client)];
    if (accepted >= limits_.handshakes_of_client) return;
    ++accepted;
    accepted_.push_back(std::move(client));
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

ClientLimits::Counts Relay::counts() const {
  const MutexLock lock(&mutex_);
  return counts_.total();
}

bool Relay::Watch(int fd, uint32_t events, uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Relay::Run() {
  // The stop has real time, since a test's clock may stand still.
  std::optional<absl::Duration> end;
  while (true) {
    Wait(TimeoutMs());
    const absl::Duration now = clock_.Uptime();
    TakeNew(now);
    Turn(now);
    CloseOverdue(now);
    {
      const MutexLock lock(&mutex_);
      if (!stops_) continue;
    }
    const absl::Duration real_now = Clock::Real()->Uptime();
    if (!end.has_value()) end = real_now + kStopGrace;
    for (const Id id : std::set<Id>(handshakes_)) Close(id);
    if (connections_.empty() || real_now >= *end) break;
  }
  while (!connections_.empty()) Close(connections_.begin()->first);
}

int Relay::TimeoutMs() const {
  if (!ready_.empty()) return 0;
  const bool is_idle = connections_.empty() && calls_.empty();
  return is_idle ? -1 : static_cast<int>(absl::ToInt64Milliseconds(kOverdueInterval)) + 1;
}

void Relay::Wait(int timeout_ms) {
  std::array<epoll_event, kEventsMax> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, timeout_ms);
  TY_CHECK(count >= 0 || errno == EINTR);
  for (int i = 0; i < count; ++i) {
    const uint64_t data = events[static_cast<size_t>(i)].data.u64;
    if (data == kWake) {
      uint64_t times = 0;
      (void)!read(wake_.get(), &times, sizeof(times));
    } else {
      ready_.insert(data);
    }
  }
}

void Relay::TakeNew(absl::Duration now) {
  std::vector<std::unique_ptr<ClientSide>> accepted;
  {
    const MutexLock lock(&mutex_);
    accepted.swap(accepted_);
    accepted_of_.clear();
  }
  for (std::unique_ptr<ClientSide>& client : accepted) Begin(std::move(client), now);
}

bool Relay::HasRoom(const std::string& client) {
  const absl::Duration now = clock_.Uptime();
  const MutexLock lock(&mutex_);
  const ClientLimits::Counts own = counts_.Of(client);
  const ClientLimits::Counts& total = counts_.total();
  if (own.connections < limits_.connections_of_client && total.connections < limits_.connections) {
    return true;
  }
  if (now - warned_ >= kWarningInterval) {
    warned_ = now;
    LogWarning("too many connections: new ones are closed until others end",
               {{"client", client},
                {"of_client", absl::StrCat(own.connections)},
                {"all", absl::StrCat(total.connections)}});
  }
  return false;
}

std::shared_ptr<ClientCalls> Relay::CallsOf(const std::string& client) {
  std::shared_ptr<ClientCalls>& calls = calls_[client];
  if (calls == nullptr) calls = std::make_shared<ClientCalls>(limits_.calls_of_client);
  return calls;
}

void Relay::Begin(std::unique_ptr<ClientSide> client, absl::Duration now) {
  const std::string key = KeyOf(*client);
  MakeRoom(key);
  const Id id = next_id_++;
  if (!Watch(client->socket(), kEdges, id)) return;
  {
    const MutexLock lock(&mutex_);
    counts_.BeginHandshake(key);
  }
  connections_.emplace(id, std::make_unique<Connection>(std::move(client), CallsOf(key), now));
  handshakes_.insert(id);
  ready_.insert(id);
}

void Relay::MakeRoom(const std::string& client) {
  ClientLimits::Counts own;
  {
    const MutexLock lock(&mutex_);
    own = counts_.Of(client);
  }
  const bool is_client_full = own.handshakes >= limits_.handshakes_of_client;
  if (!is_client_full && handshakes_.size() < limits_.handshakes) return;
  for (const Id id : handshakes_) {
    if (is_client_full && KeyOf(connections_.at(id)->client()) != client) continue;
    Close(id);
    return;
  }
}

void Relay::Turn(absl::Duration now) {
  std::set<Id> ready;
  ready.swap(ready_);
  size_t handshakes = 0;
  for (const Id id : ready) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;  // it was closed after its event
    Connection& connection = *found->second;
    if (!connection.is_open()) {
      if (++handshakes > limits_.handshake_steps_of_turn) {
        ready_.insert(id);
        continue;
      }
      const Connection::Step step = connection.ContinueHandshake();
      if (step == Connection::Step::kContinues) HandOver(id, connection);
      if (step == Connection::Step::kEnds) Close(id);
      continue;
    }
    const Connection::Step step = connection.Relay(absl::MakeSpan(scratch_), now);
    if (step == Connection::Step::kContinues) ready_.insert(id);
    if (step == Connection::Step::kEnds) Close(id);
  }
}

void Relay::HandOver(Id id, Connection& connection) {
  if (auto socket = connection.TakeSocket(); socket.has_value()) {
    return Release(id, *std::move(socket));
  }
  const std::string& client = KeyOf(connection.client());
  if (!HasRoom(client)) return Close(id);
  auto plain = connection.Open();
  if (!plain.ok() || !Watch(connection.plain(), kEdges, id)) return Close(id);
  handshakes_.erase(id);
  {
    const MutexLock lock(&mutex_);
    counts_.EndHandshake(client);
    counts_.Open(client);
  }
  ready_.insert(id);
  open_({*std::move(plain), connection.client().peer(), connection.is_known(),
         connection.client().protocol()});
}

void Relay::Release(Id id, UniqueFd socket) {
  Opened opened;
  opened.peer = connections_.at(id)->client().peer();
  opened.protocol = connections_.at(id)->client().protocol();
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  opened.plain = std::move(socket);
  Close(id);
  open_(std::move(opened));
}

void Relay::Close(Id id) {
  const auto found = connections_.find(id);
  const std::string& client = KeyOf(found->second->client());
  {
    const MutexLock lock(&mutex_);
    if (handshakes_.erase(id) > 0) {
      counts_.EndHandshake(client);
    } else {
      counts_.Close(client);
    }
  }
  ready_.erase(id);
  connections_.erase(found);
}

void Relay::CloseOverdue(absl::Duration now) {
  if (now - overdue_checked_ < kOverdueInterval) return;
  overdue_checked_ = now;
  const absl::Time wall = clock_.Now();
  std::vector<Id> overdue;
  for (const auto& [id, connection] : connections_) {
    if (connection->IsOverdue(now, wall)) overdue.push_back(id);
  }
  for (const Id id : overdue) Close(id);
  absl::erase_if(calls_, [now](const auto& entry) {
    return entry.second.use_count() == 1 && entry.second->IsIdle(now);
  });
}

}  // namespace trainyard::relay
