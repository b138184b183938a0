// Streams of jobs and of metrics have a number that the services understand. A log is asked for
// once more from the lowest place of its ranks, and what the client has is cut off.
#include "server/http/event_resume.h"

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/ids.h"
#include "common/spec/interval.h"
#include "server/http/limits.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::http {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The ranks whose places fit into an id. With more, events have no ids.
constexpr size_t kRanksMax = 64;

std::unique_ptr<Message> Copy(const Message& message) {
  std::unique_ptr<Message> copy(message.New());
  copy->CopyFrom(message);
  return copy;
}

// A stream whose messages have a number with which it can be started again.
class NumberCursor : public Cursor {
 public:
  NumberCursor(const Message& request, const FieldDescriptor& start, const FieldDescriptor& number)
      : request_(Copy(request)), start_(start), number_(number) {}

  bool Resume(absl::string_view id) override {
    int64_t number = 0;
    if (!absl::SimpleAtoi(id, &number) || number < 0) return false;
    request_->GetReflection()->SetInt64(request_.get(), &start_, number);
    return true;
  }
  std::unique_ptr<Message> Request() const override { return Copy(*request_); }
  Taken Take(const Message& message) override {
    last_ = message.GetReflection()->GetInt64(message, &number_);
    return {};
  }
  std::string Id() const override { return absl::StrCat(last_); }

 private:
  const std::unique_ptr<Message> request_;
  const FieldDescriptor& start_;
  const FieldDescriptor& number_;
  int64_t last_ = 0;
};

// A revision is reached when all jobs that one commit has changed were sent. Until then an id is
// the revision before, and the commit and the number of the last one of its jobs: "6;7;12".
class JobsCursor : public Cursor {
 public:
  // A client that does not say for how long changes wait for each other gets them together, since a
  // message of a call costs more than an event.
  explicit JobsCursor(const v1::WatchJobsRequest& request) : request_(request) {
    if (!request_.has_gather_interval()) {
      *request_.mutable_gather_interval() = spec::ToProto(kGatherInterval);
    }
  }

  bool Resume(absl::string_view id) override {
    const std::vector<absl::string_view> parts = absl::StrSplit(id, ';');
    if (parts.size() != 1 && parts.size() != 3) return false;
    int64_t revision = 0;
    if (!absl::SimpleAtoi(parts[0], &revision) || revision < 0) return false;
    if (parts.size() == 3 &&
        (!absl::SimpleAtoi(parts[1], &sent_.first) || !absl::SimpleAtoi(parts[2], &sent_.second) ||
         sent_.first <= revision || sent_.second < 1)) {
      return false;
    }
    request_.set_start_revision(revision);
    revision_ = revision;
    had_ = sent_;
    return true;
  }

  std::unique_ptr<Message> Request() const override {
    return std::make_unique<v1::WatchJobsRequest>(request_);
  }

  Taken Take(const Message& message) override {
    const auto& response = static_cast<const v1::WatchJobsResponse&>(message);
    revision_ = response.revision();
    const auto job = ParseJobName(response.job().name());
    int64_t commit = 0;
    if (!job.ok() || response.deleted() || !absl::SimpleAtoi(response.job().etag(), &commit)) {
      return {};
    }
    const Place place = {commit, job->value};
    // Jobs also come again without a commit, when their reason for waiting changes. So each is cut
    // off once.
    const bool is_known = commit > request_.start_revision() && place <= had_;
    if (is_known && cut_.insert(place.second).second) return {.is_new = false};
    sent_ = std::max(sent_, place);
    return {};
  }

  std::string Id() const override {
    if (sent_.first <= revision_) return absl::StrCat(revision_);
    return absl::StrCat(revision_, ";", sent_.first, ";", sent_.second);
  }

 private:
  // The services send jobs in this order: by the commit that changed them last, and by number.
  using Place = std::pair<int64_t, int64_t>;

  v1::WatchJobsRequest request_;
  int64_t revision_ = 0;
  Place sent_ = {0, 0};
  Place had_ = {0, 0};  // by a client that goes on
  std::set<int64_t> cut_;
};

// An id is the attempt, and for each rank the offset of the next byte: "2;0=512;1=90".
class LogCursor : public Cursor {
 public:
  explicit LogCursor(const v1::TailLogsRequest& request) : request_(request) {}

  bool Resume(absl::string_view id) override {
    is_resumed_ = true;
    const std::vector<absl::string_view> parts = absl::StrSplit(id, ';');
    if (parts.size() > kRanksMax + 1 || !absl::SimpleAtoi(parts[0], &attempt_) || attempt_ < 1) {
      return false;
    }
    for (size_t i = 1; i < parts.size(); ++i) {
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
      int32_t rank = 0;
      int64_t offset = 0;
      if (!absl::SimpleAtoi(pair.first, &rank) || !absl::SimpleAtoi(pair.second, &offset) ||
          rank < 0 || offset < 0 || !next_.emplace(rank, offset).second) {
        return false;
      }
    }
    const auto only = ParseAttemptName(request_.name());
    return !only.ok() || only->number == attempt_;
  }

  std::unique_ptr<Message> Request() const override {
    auto request = std::make_unique<v1::TailLogsRequest>(request_);
    if (attempt_ == 0) return request;
    const auto job = ParseJobName(request_.name());
    if (job.ok()) request->set_name(AttemptName({*job, attempt_}));
    request->set_offset(Start());
    return request;
  }

  std::optional<AttemptId> AttemptToKnow() const override {
    if (!is_resumed_ || request_.has_rank() || next_.empty()) return std::nullopt;
    const auto attempt = ParseAttemptName(request_.name());
    if (attempt.ok()) return *attempt;
    const auto job = ParseJobName(request_.name());
    if (!job.ok()) return std::nullopt;
    return AttemptId{*job, attempt_};
  }
  void SetRanks(int ranks) override { ranks_ = ranks; }

  Taken Take(const Message& message) override {
    const auto& chunk = static_cast<const v1::TailLogsResponse&>(message);
    if (chunk.attempt() < attempt_) return {.is_new = false};
    if (chunk.attempt() > attempt_) {
      attempt_ = chunk.attempt();
      next_.clear();
    }
    const auto end = chunk.offset() + static_cast<int64_t>(chunk.data().size());
    const auto [place, is_new] = next_.emplace(chunk.rank(), end);
    if (is_new) return {};
    if (end <= place->second) return {.is_new = false};
    const int64_t begin = std::exchange(place->second, end);
    if (begin <= chunk.offset()) return {};
    auto rest = std::make_unique<v1::TailLogsResponse>(chunk);
    rest->mutable_data()->erase(0, static_cast<size_t>(begin - chunk.offset()));
    rest->set_offset(begin);
    return {.rest = std::move(rest)};
  }

  std::string Id() const override {
    if (next_.size() > kRanksMax) return "";
    std::string id = absl::StrCat(attempt_);
    for (const auto& [rank, offset] : next_) absl::StrAppend(&id, ";", rank, "=", offset);
    return id;
  }

  // A call that was resumed is about one attempt. Those after it follow, and after the last one the
  // job itself, which says whether more are to come.
  std::unique_ptr<Message> Following(const absl::Status& status) override {
    const auto job = ParseJobName(request_.name());
    if (!is_resumed_ || !job.ok() || !request_.follow() || is_last_) return nullptr;
    const bool has_followed = following_ > 0;
    auto request = std::make_unique<v1::TailLogsRequest>(request_);
    request->set_offset(0);
    if (status.ok()) {
      following_ = std::max(following_, attempt_) + 1;
      request->set_name(AttemptName({*job, following_}));
      return request;
    }
    if (!absl::IsNotFound(status) || !has_followed) return nullptr;
    is_last_ = true;
    return request;
  }

 private:
  // Returns where a call begins to read all logs that it is about.
  int64_t Start() const {
    int64_t lowest = std::numeric_limits<int64_t>::max();
    if (request_.has_rank()) {
      const auto place = next_.find(request_.rank());
      if (place != next_.end()) return place->second;
    } else if (ranks_ > 0 && next_.size() >= static_cast<size_t>(ranks_)) {
      for (const auto& [rank, offset] : next_) lowest = std::min(lowest, offset);
      return lowest;
    }
    // A rank that has no place in the id had written nothing. What it has written since is not
    // cut off, so a number of bytes before the end, which has moved, is the start.
    return std::max<int64_t>(request_.offset(), 0);
  }

  const v1::TailLogsRequest request_;
  bool is_resumed_ = false;
  bool is_last_ = false;
  int32_t attempt_ = 0;
  int ranks_ = 0;                    // of attempt_; 0 while nobody has said
  int32_t following_ = 0;            // the attempt after the one that was resumed
  std::map<int32_t, int64_t> next_;  // by rank, in the log of attempt_
};

}  // namespace

std::vector<std::string> TakeApart(const google::protobuf::Descriptor& type, std::string message) {
  std::vector<std::string> parts;
  google::protobuf::UnknownFieldSet fields;
  if (type.full_name() != v1::WatchJobsResponse::descriptor()->full_name() ||
      !fields.ParseFromString(message)) {
    parts.push_back(std::move(message));
    return parts;
  }
  parts.emplace_back();
  for (int i = 0; i < fields.field_count(); ++i) {
    google::protobuf::UnknownField& field = *fields.mutable_field(i);
    const bool is_more = field.number() == v1::WatchJobsResponse::kMoreFieldNumber &&
                         field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED;
    if (is_more) parts.push_back(std::move(*field.mutable_length_delimited()));
  }
  fields.DeleteByNumber(v1::WatchJobsResponse::kMoreFieldNumber);
  fields.SerializeToString(&parts[0]);
  return parts;
}

std::unique_ptr<Cursor> MakeCursor(const RpcMethod& method, const Message& request) {
  if (method.descriptor->input_type() == v1::TailLogsRequest::descriptor()) {
    return std::make_unique<LogCursor>(static_cast<const v1::TailLogsRequest&>(request));
  }
  if (method.descriptor->input_type() == v1::WatchJobsRequest::descriptor()) {
    return std::make_unique<JobsCursor>(static_cast<const v1::WatchJobsRequest&>(request));
  }
  const auto number = [](const google::protobuf::Descriptor& type, const char* name) {
    const FieldDescriptor* field = type.FindFieldByName(name);
    const bool fits = field != nullptr && field->cpp_type() == FieldDescriptor::CPPTYPE_INT64;
    return fits ? field : nullptr;
  };
  const auto& input = *method.descriptor->input_type();
  const auto& output = *method.descriptor->output_type();
  for (const auto& [start, last] :
       {std::pair("start_revision", "revision"), {"cursor", "cursor"}}) {
    const FieldDescriptor* from = number(input, start);
    const FieldDescriptor* to = number(output, last);
    if (from != nullptr && to != nullptr) {
      return std::make_unique<NumberCursor>(request, *from, *to);
    }
  }
  return nullptr;
}

}  // namespace trainyard::http
