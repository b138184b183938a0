// Looks at all growing files in turn, and sends the bytes that the server does not have yet.
#include "worker/agent/stream_uploader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/report_limits.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "worker/agent/act_as.h"
#include "worker/run_dir/metrics.h"
#include "worker/run_dir/records.h"
#include "worker/run_dir/tail.h"

namespace trainyard::agent {
namespace {

// The time between two looks at growing files. It is short, so that what a rank writes is on the
// server soon.
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
// The time between two looks at the session while nothing is left to send.
constexpr absl::Duration kSessionInterval = absl::Seconds(1);
constexpr absl::Duration kBackoffFirst = absl::Milliseconds(100);
constexpr absl::Duration kBackoffLast = absl::Seconds(3);
constexpr absl::Duration kCallTimeout = absl::Seconds(20);
constexpr int64_t kLogChunkBytes = 512 << 10;
// Longer lines are no metrics.
constexpr int64_t kMetricChunkBytes = 256 << 10;
constexpr int kPointsPerCall = 5000;
// A rank has at most as many different metrics; further ones are left out. Each is a series of its
// own on the server.
constexpr size_t kMetricNamesMax = 4096;
// A stream of which the server wants no more is cut off when it has reached this size, because the
// disk is there for checkpoints too.
constexpr int64_t kUnwantedBytesMax = 16 << 20;
// The number of chunks of one stream before it is the turn of the next.
constexpr int kChunksPerTurn = 16;

void ToProto(const run_dir::MetricPoint& point, AttemptId id, v1::MetricPoint& proto) {
  proto.set_step(point.step);
  proto.set_name(point.name);
  proto.set_value(point.value);
  proto.mutable_time()->set_seconds(point.time_us / 1'000'000);
  proto.mutable_time()->set_nanos(static_cast<int32_t>(point.time_us % 1'000'000 * 1000));
  proto.set_attempt(id.number);
}

}  // namespace

absl::string_view StreamUploader::KindName(Kind kind) {
  switch (kind) {
    case Kind::kLog:
      return "log";
    case Kind::kTrace:
      return "trace";
    case Kind::kEnvironment:
      return "environment";
    case Kind::kMetrics:
      return "metrics";
    case Kind::kDeviceMetrics:
      return "device metrics";
  }
  return "stream";
}

StreamUploader::StreamUploader(v1::AgentService::StubInterface& stub, Session& session, Rng& rng,
                               std::function<void()> on_done)
    : stub_(stub),
      session_(session),
      on_done_(std::move(on_done)),
      backoff_(kBackoffFirst, kBackoffLast, rng) {}

StreamUploader::~StreamUploader() {
  Stop();
}

void StreamUploader::Start() {
  thread_ = std::thread([this] { Run(); });
}

void StreamUploader::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  token_.Cancel();
  if (thread_.joinable()) thread_.join();
}

void StreamUploader::SetTargets(std::vector<UploadTarget> targets) {
  absl::MutexLock lock(&mutex_);
  const auto same = [](const UploadTarget& a, const UploadTarget& b) {
    return a.id == b.id && a.exited == b.exited && a.fencing_token == b.fencing_token;
  };
  if (std::equal(targets.begin(), targets.end(), targets_.begin(), targets_.end(), same)) return;
  targets_ = std::move(targets);
  std::erase_if(progress_, [this](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::none_of(targets_.begin(), targets_.end(),
                        [&](const UploadTarget& target) { return target.id == entry.first; });
  });
  changed_ = true;
}

StreamUploader::Progress StreamUploader::ProgressOf(AttemptId id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = progress_.find(id);
  return found == progress_.end() ? Progress{} : found->second;
}

void StreamUploader::Run() {
  absl::Duration wait = absl::ZeroDuration();
  while (true) {
    std::vector<UploadTarget> targets;
    bool has_any = false;
    {
      absl::MutexLock lock(&mutex_);
      const auto woken = [this]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || changed_; };
      mutex_.AwaitWithTimeout(absl::Condition(&woken), wait);
      if (stop_) return;
      changed_ = false;
      TakeSession();
      has_any = !targets_.empty();
      for (const UploadTarget& target : targets_) {
        if (!progress_[target.id].done) targets.push_back(target);
      }
    }
    std::erase_if(streams_, [&targets](const auto& entry) {
      return std::none_of(targets.begin(), targets.end(),
                          [&](const UploadTarget& target) { return target.id == entry.first; });
    });
    bool more = false;
    bool healthy = !session_.Get().empty();
    for (const UploadTarget& target : targets) {
      if (healthy) more = PumpAttempt(target, healthy) || more;
    }
    if (healthy) backoff_.Reset();
    wait = !healthy ? backoff_.Next() : more ? absl::ZeroDuration() : kPollInterval;
    if (targets.empty()) wait = has_any ? kSessionInterval : absl::InfiniteDuration();
  }
}

// The server may have been started anew on files that lack what it had acknowledged. The files here
// are still whole, so each stream asks where the server is.
void StreamUploader::TakeSession() {
  const std::string session = session_.Get();
  if (session.empty() || session == known_session_) return;
  known_session_ = session;
  streams_.clear();
  for (auto& [id, progress] : progress_) progress.done = false;
}

bool StreamUploader::PumpAttempt(const UploadTarget& target, bool& healthy) {
  bool more = false;
  for (const int rank : target.ranks) {
    for (const Kind kind :
         {Kind::kMetrics, Kind::kDeviceMetrics, Kind::kLog, Kind::kTrace, Kind::kEnvironment}) {
      // The ranks of a job run in the same environment, so one of them tells it.
      if (kind == Kind::kEnvironment && rank != 0) continue;
      const StreamKey key(rank, kind);
      Stream& stream = streams_[target.id][key];
      StreamCursor::Next next = StreamCursor::Next::kMore;
      for (int i = 0; i < kChunksPerTurn && next == StreamCursor::Next::kMore; ++i) {
        next = Pump(target, key, stream);
      }
      if (next == StreamCursor::Next::kFailed) {
        healthy = false;
        return false;
      }
      more = more || next == StreamCursor::Next::kMore;
    }
  }
  // `exited` was known before the files were looked at, so their ends are final.
  if (more || !target.exited) return more;
  {
    absl::MutexLock lock(&mutex_);
    progress_[target.id].done = true;
  }
  on_done_();
  return false;
}

StreamCursor::Next StreamUploader::Pump(const UploadTarget& target, StreamKey key, Stream& stream) {
  if (stream.cursor.is_closed()) {
    const ActAs as(target.owner);
    if (stream.is_full) CutOff(PathOf(target, key));
    return StreamCursor::Next::kAtEnd;
  }
  bool at_end = false;
  const bool is_bytes = key.second != Kind::kMetrics && key.second != Kind::kDeviceMetrics;
  const auto next_offset =
      is_bytes ? SendBytes(target, key, stream, at_end) : SendMetrics(target, key, stream, at_end);
  if (!next_offset.ok()) {
    const StreamCursor::Next next = stream.cursor.Failed(next_offset.status());
    stream.is_full = ErrorReason(next_offset.status()) == kStreamFull;
    if (stream.cursor.is_closed()) WarnOfRefusal(target, key, next_offset.status());
    return next;
  }
  if (at_end) return StreamCursor::Next::kAtEnd;
  return stream.cursor.Acknowledged(*next_offset);
}

std::string StreamUploader::PathOf(const UploadTarget& target, StreamKey key) {
  switch (key.second) {
    case Kind::kTrace:
      return target.dir.TracePath(key.first);
    case Kind::kEnvironment:
      return target.dir.EnvironmentPath(key.first);
    default:
      return target.dir.LogPath(key.first);
  }
}

// Empties a file that the rank appends to. Its next line becomes the first.
void StreamUploader::CutOff(const std::string& path) {
  const auto file = OpenRegularFile(path, O_WRONLY);
  if (!file.ok()) return;
  struct stat info {};
  if (fstat(file->get(), &info) == 0 && info.st_size > kUnwantedBytesMax) {
    (void)!ftruncate(file->get(), 0);
  }
}

template <typename Request, typename Call>
absl::StatusOr<int64_t> StreamUploader::Send(const UploadTarget& target, int rank,
                                             const Stream& stream, Request& request, Call call) {
  const std::string session = session_.Get();
  // The link may have lost the session since the last call. Without one the server would refuse the
  // request as malformed, and nothing would be sent again.
  if (session.empty()) return absl::UnavailableError("there is no session with the server");
  request.set_session(session);
  request.set_attempt(AttemptName(target.id));
  request.set_fencing_token(target.fencing_token);
  request.set_rank(rank);
  request.set_offset(stream.cursor.offset());
  grpc::ClientContext context;
  rpc::SetTimeout(context, kCallTimeout);
  const CancelToken::Scope scope(token_, context);
  v1::AppendResponse response;
  const absl::Status status = rpc::FromGrpcStatus(call(&context, &response));
  // The link registers again, and the stream continues under the new session.
  if (ErrorReason(status) == "UNKNOWN_SESSION") session_.Forget(session);
  TY_RETURN_IF_ERROR(status);
  return response.next_offset();
}

// An empty chunk at offset 0 asks for the server's offset. It is not sent before there is something
// to send.
absl::StatusOr<int64_t> StreamUploader::SendBytes(const UploadTarget& target, StreamKey key,
                                                  Stream& stream, bool& at_end) {
  v1::AppendLogRequest request;
  request.set_stream(key.second == Kind::kTrace         ? v1::RANK_STREAM_TRACE
                     : key.second == Kind::kEnvironment ? v1::RANK_STREAM_ENVIRONMENT
                                                        : v1::RANK_STREAM_LOG);
  const int64_t offset = stream.cursor.offset();
  absl::StatusOr<std::string> data = [&] {
    const ActAs as(target.owner);
    return ReadRegularFileRange(PathOf(target, key), offset, kLogChunkBytes);
  }();
  if (!data.ok()) WarnOfUnreadable(stream, data.status());
  at_end = !data.ok() || data->empty();
  if (at_end) return offset;
  if (stream.cursor.is_known()) request.set_data(*std::move(data));
  return Send(target, key.first, stream, request, [&](auto* context, auto* response) {
    return stub_.AppendLog(context, request, response);
  });
}

absl::StatusOr<int64_t> StreamUploader::SendMetrics(const UploadTarget& target, StreamKey key,
                                                    Stream& stream, bool& at_end) {
  const int rank = key.first;
  const bool of_device = key.second == Kind::kDeviceMetrics;
  v1::AppendMetricsRequest request;
  request.set_of_device(of_device);
  std::map<std::string, double> last;
  int64_t end = stream.cursor.offset();
  const std::string path =
      of_device ? target.dir.DeviceMetricsPath(rank) : target.dir.MetricsPath(rank);
  const absl::StatusOr<run_dir::LineChunk> read = [&] {
    const ActAs as(target.owner);
    return run_dir::ReadWholeLines(path, end, kMetricChunkBytes);
  }();
  if (!read.ok()) WarnOfUnreadable(stream, read.status());
  const run_dir::LineChunk chunk = read.value_or(run_dir::LineChunk());
  at_end = chunk.text.empty();
  if (at_end) return end;
  if (stream.cursor.is_known()) {
    absl::string_view rest = chunk.text;
    while (!rest.empty() && request.points_size() < kPointsPerCall) {
      const absl::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size() - 1) + 1);
      rest.remove_prefix(line.size());
      end += static_cast<int64_t>(line.size());
      auto point = run_dir::DecodeMetricLine(line, path);
      if (point.ok() && !TakeName(stream, point->name)) {
        point = absl::InvalidArgumentError(
            absl::StrCat("'", path, "' has more than ", kMetricNamesMax, " different names"));
      }
      if (point.ok()) {
        ToProto(*point, target.id, *request.add_points());
        last[point->name] = point->value;
      } else if (!stream.is_warned) {
        // A user's script may write anything. A bad line does not affect the lines around it.
        stream.is_warned = true;
        LogWarning("skipped a line of metrics", {{"error", std::string(point.status().message())}});
      }
    }
  }
  request.set_end_offset(end);
  TY_ASSIGN_OR_RETURN(const int64_t next,
                      Send(target, rank, stream, request, [&](auto* context, auto* response) {
                        return stub_.AppendMetrics(context, request, response);
                      }));
  if (rank == *std::min_element(target.ranks.begin(), target.ranks.end())) {
    absl::MutexLock lock(&mutex_);
    auto& metrics = progress_[target.id].metrics;
    for (const auto& [name, value] : last) {
      const bool is_shown = absl::StartsWith(name, "train.") || absl::StartsWith(name, "test.");
      // The report has the first ones only. All of them are stored with their points.
      const bool has_place = metrics.contains(name) || metrics.size() < run_dir::kLastMetricsMax;
      if (is_shown && has_place) metrics[name] = value;
    }
  }
  return next;
}

bool StreamUploader::TakeName(Stream& stream, const std::string& name) {
  if (stream.names.contains(name)) return true;
  if (stream.names.size() == kMetricNamesMax) return false;
  stream.names.insert(name);
  return true;
}

// A file that cannot be read has nothing to send. Its owner may have made it so, and must not hold
// up the streams of others.
void StreamUploader::WarnOfUnreadable(Stream& stream, const absl::Status& status) {
  if (absl::IsNotFound(status) || std::exchange(stream.is_warned, true)) return;
  LogWarning("a stream cannot be read", {{"error", std::string(status.message())}});
}

void StreamUploader::WarnOfRefusal(const UploadTarget& target, StreamKey key,
                                   const absl::Status& status) {
  LogWarning("the server refuses a stream",
             {{"attempt", AttemptName(target.id)},
              {"stream", absl::StrCat(KindName(key.second), " of rank ", key.first)},
              {"error", std::string(status.message())}});
}

}  // namespace trainyard::agent
