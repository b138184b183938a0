// Runs an epoll loop with edges: a descriptor is announced when it becomes readable or writable,
// and the connection is then served until it blocks or its turn is over.
#include "server/tls/terminator.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include "common/tls/openssl.h"

namespace trainyard::tls {
namespace {

constexpr uint64_t kWake = 0;
constexpr uint64_t kFiles = ~uint64_t{0};
constexpr uint32_t kEdges = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
constexpr size_t kEventsMax = 256;
constexpr size_t kScratchBytes = 64 * 1024;
// Steps of handshakes in one turn. Each may take a few tenths of a millisecond of arithmetic, and
// connections that are open wait meanwhile.
constexpr int kHandshakesOfTurn = 16;
constexpr absl::Duration kOverdueInterval = absl::Seconds(1);
constexpr absl::Duration kRefreshInterval = absl::Minutes(1);
// Somebody who replaces a certificate and its key writes two files. They are read after a pause.
constexpr absl::Duration kRefreshPause = absl::Milliseconds(300);
constexpr absl::Duration kWarningInterval = absl::Minutes(1);
constexpr absl::Duration kStopGrace = absl::Seconds(1);
// A client whose host or line has vanished is noticed within some two minutes.
constexpr int kKeepaliveIdleS = 60;
constexpr int kKeepaliveIntervalS = 15;
constexpr int kKeepaliveProbes = 4;
constexpr int kUnansweredMs = 120'000;

void SetTcpOptions(int socket) {
  const auto set = [socket](int level, int option, int value) {
    // The options only help. A socket without them, such as a Unix socket of a test, works too.
    (void)setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleS);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalS);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMs);
}

}  // namespace

Terminator::Terminator(CertificateFiles& files, Clock& clock, Open open, PortLimits limits)
    : files_(files),
      clock_(clock),
      open_(std::move(open)),
      limits_(limits),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      scratch_(kScratchBytes),
      refresh_at_(clock.Uptime() + kRefreshInterval) {
  TY_CHECK(epoll_.valid() && wake_.valid());
  TY_CHECK(Watch(wake_.get(), EPOLLIN, kWake));
  if (files_.fd() >= 0) TY_CHECK(Watch(files_.fd(), EPOLLIN | EPOLLET, kFiles));
  thread_ = std::thread([this] { Run(); });
}

Terminator::~Terminator() {
  {
    const MutexLock lock(&mutex_);
    stops_ = true;
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

void Terminator::Take(UniqueFd connection) {
  {
    const MutexLock lock(&mutex_);
    // The thread takes them faster than a peer can open them, unless it has no processor.
    if (stops_ || accepted_.size() >= limits_.handshakes) return;
    accepted_.push_back(std::move(connection));
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

AddressLimits::Counts Terminator::counts() const {
  const MutexLock lock(&mutex_);
  return counts_.total();
}

bool Terminator::Watch(int fd, uint32_t events, uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Terminator::Run() {
  // The stop has real time, since a test's clock may stand still.
  std::optional<absl::Duration> end;
  while (true) {
    Wait(TimeoutMs(clock_.Uptime()));
    const absl::Duration now = clock_.Uptime();
    TakeNew(now);
    Turn(now);
    CloseOverdue(now);
    RefreshFiles(now);
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

int Terminator::TimeoutMs(absl::Duration now) const {
  if (!ready_.empty()) return 0;
  absl::Duration timeout = std::max(refresh_at_ - now, absl::ZeroDuration());
  if (!connections_.empty()) timeout = std::min(timeout, kOverdueInterval);
  return static_cast<int>(absl::ToInt64Milliseconds(std::min(timeout, kRefreshInterval))) + 1;
}

void Terminator::Wait(int timeout_ms) {
  std::array<epoll_event, kEventsMax> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, timeout_ms);
  TY_CHECK(count >= 0 || errno == EINTR);
  for (int i = 0; i < count; ++i) {
    const uint64_t data = events[static_cast<size_t>(i)].data.u64;
    if (data == kWake) {
      uint64_t times = 0;
      (void)!read(wake_.get(), &times, sizeof(times));
    } else if (data == kFiles) {
      refresh_at_ = std::min(refresh_at_, clock_.Uptime() + kRefreshPause);
    } else {
      ready_.insert(data);
    }
  }
}

void Terminator::TakeNew(absl::Duration now) {
  std::vector<UniqueFd> accepted;
  {
    const MutexLock lock(&mutex_);
    accepted.swap(accepted_);
  }
  for (UniqueFd& socket : accepted) Begin(std::move(socket), now);
}

bool Terminator::HasRoom(const std::string& address, absl::Duration now) {
  AddressLimits::Counts own;
  AddressLimits::Counts total;
  {
    const MutexLock lock(&mutex_);
    own = counts_.Of(address);
    total = counts_.total();
  }
  if (own.connections < limits_.connections_of_address && total.connections < limits_.connections) {
    return true;
  }
  if (now - warned_ >= kWarningInterval) {
    warned_ = now;
    LogWarning("too many connections of TLS: new ones are closed until others end",
               {{"address", address},
                {"of_address", absl::StrCat(own.connections)},
                {"all", absl::StrCat(total.connections)}});
  }
  return false;
}

void Terminator::Begin(UniqueFd socket, absl::Duration now) {
  RemoteAddress remote = RemoteAddressOf(socket.get());
  if (!HasRoom(remote.key, now)) return;
  MakeRoom(remote.key);
  SetTcpOptions(socket.get());
  SslPtr ssl(SSL_new(files_.context().get()));
  if (ssl == nullptr) return;
  // Certificates of clients are judged by our clock, as all else is.
  X509_VERIFY_PARAM_set_time(SSL_get0_param(ssl.get()), absl::ToTimeT(clock_.Now()));
  const Id id = next_id_++;
  const int fd = socket.get();
  auto connection =
      std::make_unique<Connection>(std::move(socket), std::move(ssl), std::move(remote), now);
  if (!Watch(fd, kEdges, id)) return;
  {
    const MutexLock lock(&mutex_);
    counts_.BeginHandshake(connection->remote().key);
  }
  connections_.emplace(id, std::move(connection));
  handshakes_.insert(id);
  ready_.insert(id);
}

void Terminator::MakeRoom(const std::string& address) {
  AddressLimits::Counts own;
  {
    const MutexLock lock(&mutex_);
    own = counts_.Of(address);
  }
  const bool is_address_full = own.handshakes >= limits_.handshakes_of_address;
  if (!is_address_full && handshakes_.size() < limits_.handshakes) return;
  for (const Id id : handshakes_) {
    if (is_address_full && connections_.at(id)->remote().key != address) continue;
    Close(id);
    return;
  }
}

void Terminator::Turn(absl::Duration now) {
  std::set<Id> ready;
  ready.swap(ready_);
  int handshakes = 0;
  for (const Id id : ready) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;  // it was closed after its event
    Connection& connection = *found->second;
    if (!connection.is_open()) {
      if (++handshakes > kHandshakesOfTurn) {
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

void Terminator::HandOver(Id id, Connection& connection) {
  if (!HasRoom(connection.remote().key, clock_.Uptime())) return Close(id);
  auto plain = connection.Open();
  if (!plain.ok() || !Watch(connection.plain(), kEdges, id)) return Close(id);
  handshakes_.erase(id);
  {
    const MutexLock lock(&mutex_);
    counts_.EndHandshake(connection.remote().key);
    counts_.Open(connection.remote().key);
  }
  ready_.insert(id);
  open_(*std::move(plain), connection.peer());
}

void Terminator::Close(Id id) {
  const auto found = connections_.find(id);
  const std::string& address = found->second->remote().key;
  {
    const MutexLock lock(&mutex_);
    if (handshakes_.erase(id) > 0) {
      counts_.EndHandshake(address);
    } else {
      counts_.Close(address);
    }
  }
  ready_.erase(id);
  connections_.erase(found);
}

void Terminator::CloseOverdue(absl::Duration now) {
  if (now - overdue_checked_ < kOverdueInterval) return;
  overdue_checked_ = now;
  const absl::Time wall = clock_.Now();
  std::vector<Id> overdue;
  for (const auto& [id, connection] : connections_) {
    if (connection->IsOverdue(now, wall)) overdue.push_back(id);
  }
  for (const Id id : overdue) Close(id);
}

void Terminator::RefreshFiles(absl::Duration now) {
  if (now < refresh_at_) return;
  refresh_at_ = now + kRefreshInterval;
  files_.Refresh();
}

}  // namespace trainyard::tls
