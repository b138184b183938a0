// Decides what is sent and removed, in which order, and what a failure means.
#include "server/runtime/bucket_copier.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/backoff.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/tls/digest.h"
#include "server/runtime/copy_errors.h"

namespace trainyard::runtime {
namespace {

// Beyond this number, all copies are looked at in place of those of single jobs.
constexpr size_t kSweepsMax = 100'000;
constexpr size_t kJobsOfPage = 1000;
// A number that is further ahead is none that a server has given to a job.
constexpr int64_t kSkippedMax = 1'000'000;
constexpr size_t kBlockBytes = size_t{1} << 20;

// Returns what no checkpoint of the job comes before.
core::CheckpointRef FirstOf(JobId job) {
  return {job, std::numeric_limits<int64_t>::min()};
}

std::vector<std::string> HashesOf(const core::CheckpointRecord& checkpoint) {
  std::vector<std::string> hashes;
  hashes.reserve(checkpoint.files.size());
  for (const core::CheckpointFile& file : checkpoint.files) hashes.push_back(file.hash);
  return hashes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BucketCopier>> BucketCopier::Create(Options options,
                                                                   BlobStore& blobs,
                                                                   const Board& board, Clock& clock,
                                                                   Rng& rng) {
  TY_ASSIGN_OR_RETURN(s3::Location location, s3::ParseLocation(options.place));
  return std::unique_ptr<BucketCopier>(
      new BucketCopier(std::move(options), std::move(location), blobs, board, clock, rng));
}

BucketCopier::BucketCopier(Options options, s3::Location location, BlobStore& blobs,
                           const Board& board, Clock& clock, Rng& rng)
    : options_(std::move(options)),
      location_(std::move(location)),
      blobs_(blobs),
      board_(board),
      clock_(clock),
      rng_(rng) {}

BucketCopier::~BucketCopier() {
  Stop();
}

void BucketCopier::Start(std::string server_id, int64_t next_job) {
  server_id_ = std::move(server_id);
  next_job_ = next_job;
  {
    const MutexLock lock(&mutex_);
    has_started_ = true;
  }
  thread_ = std::thread([this] { Run(); });
}

void BucketCopier::Stop() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
    if (cancelled_by_stop_ != nullptr) cancelled_by_stop_->Cancel();
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

std::string BucketCopier::FolderOf(JobId job) const {
  return absl::StrCat("s3://", location_.bucket, "/", location_.prefix, CopyFolderName(job));
}

std::string BucketCopier::PlaceOf(const core::CheckpointRef& id) const {
  return absl::StrCat("s3://", location_.bucket, "/", location_.prefix, CopyName(id));
}

bool BucketCopier::IsWanted(const core::CheckpointRecord& checkpoint) const {
  return !checkpoint.id.is_outputs() && checkpoint.is_whole() &&
         checkpoint.copy != PlaceOf(checkpoint.id);
}

void BucketCopier::Take(const core::Turn& turn) {
  const MutexLock lock(&mutex_);
  // The start looks at everything.
  if (!has_started_) return;
  for (const core::CheckpointRef& id : turn.delta.deleted_checkpoints) {
    Drop(id);
    deleted_.insert(id);
    Sweep(id.job);
  }
  for (const JobId job : turn.delta.deleted_jobs) Sweep(job);
  for (const core::CheckpointRecord& checkpoint : turn.delta.checkpoints) {
    if (IsWanted(checkpoint)) {
      Enqueue(checkpoint);
    } else {
      Drop(checkpoint.id);
    }
  }
  changed_.SignalAll();
}

void BucketCopier::Enqueue(const core::CheckpointRecord& checkpoint) {
  Waiting& waiting = waiting_[checkpoint.id];
  // One that waits already keeps its turn, but may have other files now.
  if (waiting.pin == nullptr) {
    waiting.number = next_number_++;
    order_[waiting.number] = checkpoint.id;
  }
  waiting.create_us = checkpoint.create_us;
  waiting.hashes = HashesOf(checkpoint);
  waiting.pin = blobs_.Pin(checkpoint.files);
  if (waiting_.size() > options_.queue_max) PassOver();
}

void BucketCopier::Drop(const core::CheckpointRef& id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  order_.erase(found->second.number);
  waiting_.erase(found);
}

void BucketCopier::PassOver() {
  const auto is_replaced = [this](const auto& queued) {
    const auto next = waiting_.upper_bound(queued.second);
    return next != waiting_.end() && next->first.job == queued.second.job;
  };
  auto passed = std::find_if(order_.begin(), order_.end(), is_replaced);
  if (passed == order_.end()) passed = order_.begin();
  Drop(core::CheckpointRef(passed->second));
  is_incomplete_ = true;
}

void BucketCopier::Sweep(JobId job) {
  if (!sweeps_all_) sweeps_.insert(job);
  if (sweeps_.size() <= kSweepsMax && deleted_.size() <= kSweepsMax) return;
  sweeps_.clear();
  deleted_.clear();
  sweeps_all_ = true;
}

BucketCopier::Figures BucketCopier::figures() const {
  const MutexLock lock(&mutex_);
  Figures figures = figures_;
  figures.sent_bytes = sent_bytes_;
  figures.waiting = static_cast<int64_t>(waiting_.size());
  for (const auto& [id, waiting] : waiting_) {
    const bool is_first = figures.oldest_us == 0 || waiting.create_us < figures.oldest_us;
    if (is_first) figures.oldest_us = waiting.create_us;
  }
  return figures;
}

void BucketCopier::Run() {
  Backoff backoff(options_.first_pause, options_.longest_pause, rng_);
  while (true) {
    const Work work = Await();
    if (work == Work::kStop) return;
    const absl::Status done = Do(work);
    if (is_stopping_) return;
    if (done.ok()) {
      backoff.Reset();
      continue;
    }
    {
      const MutexLock lock(&mutex_);
      ++figures_.failures;
    }
    LogWarning("checkpoints cannot be copied to the bucket; the server tries again",
               {{"bucket", options_.place}, {"error", std::string(done.message())}});
    if (!Pause(backoff.Next())) return;
  }
}

// A sweep comes after each copy, so that a bucket that is too slow does not grow.
BucketCopier::Work BucketCopier::Await() {
  const MutexLock lock(&mutex_);
  while (true) {
    if (is_stopping_) return Work::kStop;
    const bool may_sweep = sweeps_all_ || !sweeps_.empty();
    if (may_sweep && std::exchange(was_copy_, false)) return Work::kSweep;
    if (!waiting_.empty()) {
      was_copy_ = true;
      return Work::kCopy;
    }
    if (is_incomplete_) return Work::kFill;
    if (may_sweep) return Work::kSweep;
    changed_.Wait(&mutex_);
  }
}

absl::Status BucketCopier::Do(Work work) {
  if (work == Work::kFill) {
    Fill();
    return absl::OkStatus();
  }
  return work == Work::kCopy ? CopyNext() : SweepNext();
}

bool BucketCopier::Pause(absl::Duration duration) {
  const absl::Duration end = clock_.Uptime() + duration;
  const MutexLock lock(&mutex_);
  for (absl::Duration left = duration; !is_stopping_ && left > absl::ZeroDuration();
       left = end - clock_.Uptime()) {
    changed_.WaitWithTimeout(&mutex_, left);
  }
  return !is_stopping_;
}

absl::Status BucketCopier::Open() {
  if (folder_.has_value()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(client_, options_.connect());
  {
    const MutexLock lock(&mutex_);
    if (is_stopping_) return absl::CancelledError("the server is shutting down");
    cancelled_by_stop_ = client_.get();
  }
  const absl::Status opened = [&]() -> absl::Status {
    TY_ASSIGN_OR_RETURN(const s3::Conditions conditions,
                        s3::Probe(*client_, location_.prefix, rng_));
    CopyFolder folder(*client_, location_.prefix, conditions);
    TY_RETURN_IF_ERROR(folder.Claim(server_id_));
    folder_.emplace(*client_, location_.prefix, conditions);
    if (!s3::AreHonoured(conditions)) {
      LogWarning("the store knows no conditional writes: only this server may write to the folder",
                 {{"bucket", options_.place}});
    }
    return absl::OkStatus();
  }();
  if (opened.ok()) return opened;
  const MutexLock lock(&mutex_);
  cancelled_by_stop_ = nullptr;
  return opened;
}

void BucketCopier::ForEachCheckpoint(
    const std::function<bool(const core::CheckpointRecord& checkpoint)>& function) const {
  const auto has_files = [](const JobView& view) { return view.checkpoint_bytes > 0; };
  int64_t before = 0;
  while (!is_stopping_) {
    const auto jobs = board_.ListJobs(before, kJobsOfPage, has_files);
    for (const auto& job : jobs) {
      for (const auto& checkpoint : board_.CheckpointsOf(job->record.id)) {
        if (!function(*checkpoint)) return;
      }
    }
    if (jobs.size() < kJobsOfPage) return;
    before = jobs.back()->record.id.value;
  }
}

void BucketCopier::Fill() {
  {
    const MutexLock lock(&mutex_);
    is_incomplete_ = false;
  }
  ForEachCheckpoint([this](const core::CheckpointRecord& checkpoint) {
    if (!IsWanted(checkpoint)) return true;
    {
      const MutexLock lock(&mutex_);
      if (waiting_.size() >= options_.queue_max) {
        is_incomplete_ = true;
        return false;
      }
      Enqueue(checkpoint);
      // It may have been deleted before the pin was there, and its files left to us.
      const auto now = board_.FindCheckpoint(checkpoint.id);
      if (now != nullptr && IsWanted(*now)) return true;
      Drop(checkpoint.id);
    }
    RemoveUnneeded(HashesOf(checkpoint));
    return true;
  });
}

absl::Status BucketCopier::CopyNext() {
  core::CheckpointRef id;
  Waiting waiting;
  {
    const MutexLock lock(&mutex_);
    if (order_.empty()) return absl::OkStatus();
    id = order_.begin()->second;
    waiting = waiting_[id];  // its pin holds the files if the checkpoint is deleted meanwhile
  }
  absl::Status copied = CopyPinned(id);
  // Whoever has deleted the checkpoint meanwhile has left its files to us.
  waiting.pin.reset();
  RemoveUnneeded(waiting.hashes);
  return copied;
}

void BucketCopier::RemoveUnneeded(const std::vector<std::string>& hashes) {
  blobs_.RemoveUnreferenced(hashes,
                            [this](const std::string& hash) { return board_.IsReferenced(hash); });
}

absl::Status BucketCopier::CopyPinned(const core::CheckpointRef& id) {
  const auto checkpoint = board_.FindCheckpoint(id);
  if (checkpoint == nullptr || !IsWanted(*checkpoint)) {
    const MutexLock lock(&mutex_);
    Drop(id);
    return absl::OkStatus();
  }
  absl::Status copied = Copy(*checkpoint);
  if (is_stopping_) return copied;
  if (absl::IsDataLoss(copied) && options_.doubt) options_.doubt(id);
  if (!copied.ok() && std::string(copied.message()) != checkpoint->copy_failure) {
    // If there is no room for the note, the next failure is noted.
    Note(*checkpoint, "", std::string(copied.message())).IgnoreError();
  }
  const MutexLock lock(&mutex_);
  if (copied.ok()) {
    ++figures_.copied;
    if (lagging_.erase(id.job) > 0) Sweep(id.job);
    return copied;
  }
  // The others have their turn first, in case that this one alone fails.
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return copied;
  order_.erase(found->second.number);
  // Only a new verdict on the files helps against damage here.
  if (absl::IsDataLoss(copied)) {
    waiting_.erase(found);
    return copied;
  }
  found->second.number = next_number_++;
  order_[found->second.number] = id;
  return copied;
}

absl::Status BucketCopier::Copy(const core::CheckpointRecord& checkpoint) {
  TY_RETURN_IF_ERROR(Open());
  // The bucket is looked through before anything is sent to it.
  if (!has_looked_) TY_RETURN_IF_ERROR(SweepNext());
  const JobId job = checkpoint.id.job;
  if (unknown_.contains(job)) {
    TY_ASSIGN_OR_RETURN(const Copies others, folder_->List(job));
    if (!others.empty()) return error::CopiesOfAnotherJob(FolderOf(job));
    unknown_.erase(job);
  }
  TY_ASSIGN_OR_RETURN(const std::vector<CopyFolder::File> files, Hash(checkpoint));
  Digests digests;
  for (size_t i = 0; i < files.size(); ++i) {
    digests[checkpoint.files[i].name] = absl::StrCat("sha256:", files[i].blob.sha256);
  }
  TY_ASSIGN_OR_RETURN(const std::string manifest, options_.describe(checkpoint, digests));
  const absl::Status sent = folder_->Send(checkpoint.id, files, manifest, sent_bytes_);
  // The next try tells if it is our own file that is damaged.
  if (absl::IsDataLoss(sent)) return absl::UnavailableError(sent.message());
  TY_RETURN_IF_ERROR(sent);
  const absl::Status noted = Note(checkpoint, PlaceOf(checkpoint.id), "");
  // A checkpoint that was deleted meanwhile has a copy until the next sweep.
  return absl::IsNotFound(noted) ? absl::OkStatus() : noted;
}

absl::Status BucketCopier::Note(const core::CheckpointRecord& checkpoint, std::string copy,
                                std::string failure) {
  std::promise<absl::Status> noted;
  options_.note(
      {checkpoint, std::move(copy), std::move(failure)},
      [&noted](const absl::StatusOr<core::Reply>& reply) { noted.set_value(reply.status()); });
  return noted.get_future().get();
}

absl::StatusOr<std::vector<CopyFolder::File>> BucketCopier::Hash(
    const core::CheckpointRecord& checkpoint) const {
  std::vector<CopyFolder::File> files;
  const auto block = std::make_unique_for_overwrite<char[]>(kBlockBytes);
  for (const core::CheckpointFile& file : checkpoint.files) {
    TY_ASSIGN_OR_RETURN(const std::string path, blobs_.PathOf(file.hash));
    const auto opened = OpenRegularFile(path, O_RDONLY);
    // Others, such as too many open files, pass.
    if (absl::IsNotFound(opened.status())) {
      return error::CorruptFile(file.name, opened.status().message());
    }
    if (!opened.ok()) return absl::UnavailableError(opened.status().message());
    ContentHasher ours;
    tls::Sha256Hasher theirs;
    int64_t size = 0;
    while (!is_stopping_) {
      const ssize_t got = read(opened->get(), block.get(), kBlockBytes);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        return absl::UnavailableError(ErrnoStatus(errno, "cannot read", path).message());
      }
      if (got == 0) break;
      const absl::string_view bytes(block.get(), static_cast<size_t>(got));
      ours.Update(bytes);
      theirs.Update(bytes);
      size += got;
    }
    if (is_stopping_) return absl::CancelledError("the server is shutting down");
    if (size != file.size || ours.Text() != file.hash) {
      return error::CorruptFile(file.name, absl::StrCat("it has ", size, " bytes and the hash ",
                                                        ours.Text(), " on the server; expected ",
                                                        file.size, " bytes and ", file.hash));
    }
    TY_ASSIGN_OR_RETURN(std::string digits, tls::Sha256Digits(theirs.Text()));
    files.push_back({path, {std::move(digits), size}});
  }
  return files;
}

absl::Status BucketCopier::SweepNext() {
  std::optional<JobId> job;
  std::set<core::CheckpointRef> deleted;
  // The next sweep is for all that is deleted from now on.
  {
    const MutexLock lock(&mutex_);
    if (std::exchange(sweeps_all_, false)) {
      deleted.swap(deleted_);
    } else if (!sweeps_.empty()) {
      job = *sweeps_.begin();
      sweeps_.erase(*job);
      const auto end = FirstOf({job->value + 1});
      auto it = deleted_.lower_bound(FirstOf(*job));
      while (it != deleted_.end() && *it < end) deleted.insert(deleted_.extract(it++));
    } else {
      return absl::OkStatus();
    }
  }
  const absl::Status swept = [&]() -> absl::Status {
    TY_RETURN_IF_ERROR(Open());
    TY_ASSIGN_OR_RETURN(const Copies copies, folder_->List(job));
    if (!job.has_value()) TY_RETURN_IF_ERROR(CompareAll(copies));
    for (auto it = copies.begin(); it != copies.end();) {
      const JobId owner = it->first.job;
      const auto end = copies.lower_bound(FirstOf({owner.value + 1}));
      TY_RETURN_IF_ERROR(SweepJob(owner, {it, end}, deleted));
      it = end;
    }
    return absl::OkStatus();
  }();
  if (swept.ok()) {
    has_looked_ = true;
    return swept;
  }
  const MutexLock lock(&mutex_);
  deleted_.merge(deleted);
  if (job.has_value()) {
    Sweep(*job);
  } else {
    sweeps_all_ = true;
  }
  return swept;
}

absl::StatusOr<bool> BucketCopier::IsUnknown(JobId job) const {
  if (board_.FindJob(job) != nullptr || !board_.CheckpointsOf(job).empty()) return false;
  TY_ASSIGN_OR_RETURN(const bool was_deleted, options_.was_deleted(job));
  return !was_deleted;
}

absl::Status BucketCopier::CompareAll(const Copies& copies) {
  std::set<JobId> unknown;
  for (const auto& [id, is_whole] : copies) {
    // A job that was unknown before may have been submitted since.
    if (unknown_.contains(id.job)) unknown.insert(id.job);
    if (unknown.contains(id.job)) continue;
    TY_ASSIGN_OR_RETURN(const bool is_unknown, IsUnknown(id.job));
    if (is_unknown) unknown.insert(id.job);
  }
  unknown_ = std::move(unknown);
  if (!unknown_.empty()) {
    LogWarning(
        "the bucket has copies of jobs that this server does not know, as after the restore of an "
        "older backup; they stay. With their folder in --checkpoint_sources, `trainyard submit "
        "--from` goes on from them. Delete them once nobody wants them",
        {{"jobs", absl::StrCat(unknown_.size())},
         {"first", FolderOf(*unknown_.begin())},
         {"last", FolderOf(*unknown_.rbegin())}});
    auto last = unknown_.lower_bound({next_job_ + kSkippedMax});
    if (last != unknown_.begin()) options_.skip_numbers(*--last);
  }
  absl::Status noted;
  ForEachCheckpoint([&](const core::CheckpointRecord& checkpoint) {
    noted = NoteIfGone(checkpoint, copies);
    return noted.ok();
  });
  return noted;
}

absl::Status BucketCopier::NoteIfGone(const core::CheckpointRecord& checkpoint,
                                      const Copies& copies) {
  if (checkpoint.copy != PlaceOf(checkpoint.id)) return absl::OkStatus();
  const auto copy = copies.find(checkpoint.id);
  if (copy != copies.end() && copy->second) return absl::OkStatus();
  // Lists of some stores are late.
  TY_ASSIGN_OR_RETURN(const bool is_there, folder_->IsWhole(checkpoint.id));
  if (is_there) return absl::OkStatus();
  const absl::Status noted =
      Note(checkpoint, "", "the copy that was there is gone from the bucket");
  return absl::IsNotFound(noted) ? absl::OkStatus() : noted;
}

absl::Status BucketCopier::SweepJob(JobId job, const Copies& copies,
                                    const std::set<core::CheckpointRef>& deleted) {
  if (unknown_.contains(job)) return absl::OkStatus();
  // All is decided by what is there at this moment. What goes later has a sweep of its own.
  const auto checkpoints = board_.CheckpointsOf(job);
  std::set<core::CheckpointRef> present;
  for (const auto& checkpoint : checkpoints) present.insert(checkpoint->id);
  // A job that was here when the bucket was looked through, or came later, and is not now.
  const bool is_deleted = board_.FindJob(job) == nullptr && checkpoints.empty();
  // One that is damaged here gets no copy, and leaves the job without a newer one all the same.
  const bool is_lagging =
      std::any_of(checkpoints.begin(), checkpoints.end(), [this](const auto& checkpoint) {
        return !checkpoint->id.is_outputs() && checkpoint->copy != PlaceOf(checkpoint->id);
      });
  const int64_t newest = checkpoints.empty() ? core::kOutputsStep : checkpoints.back()->id.step;
  std::optional<core::CheckpointRef> newest_copy;
  for (const auto& [id, is_whole] : copies) {
    if (is_whole) newest_copy = id;
  }
  for (const auto& [id, is_whole] : copies) {
    if (present.contains(id)) continue;
    if (!is_deleted && id.step > newest && !deleted.contains(id)) continue;
    if (is_lagging && newest_copy == id) {
      const MutexLock lock(&mutex_);
      lagging_.insert(job);
      if (deleted.contains(id)) deleted_.insert(id);
      continue;
    }
    TY_RETURN_IF_ERROR(folder_->Remove(id));
    LogInfo("the copy of a checkpoint that is gone was removed", {{"copy", PlaceOf(id)}});
    const MutexLock lock(&mutex_);
    ++figures_.removed;
  }
  return absl::OkStatus();
}

}  // namespace trainyard::runtime
