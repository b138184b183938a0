// Tests that a checkpoint comes from a bucket whole or not at all, and only from where it may.
#include "server/rpc/checkpoint_imports.h"

#include <gmock/gmock.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/errors.h"
#include "common/s3/sign.h"
#include "server/rpc/checkpoint_copy.h"
#include "server/rpc/copied_checkpoint.h"
#include "server/runtime/copy_folder.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/wait.h"
#include "tests/unit/server/rpc/checkpoint_fixture.h"

namespace trainyard::rpc {
namespace {

using testing::FakeS3;
using ::testing::HasSubstr;
using testing::WaitUntil;

// The job 1 of the fixture runs on another server, as far as the bucket can tell.
class CheckpointImportsTest : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    const v1::CheckpointFile file = File("model.safetensors", kWeights);
    const v1::CheckpointFile empty = File("state.json", "");
    ASSERT_TRUE(Append(file, 0, kWeights).ok());
    ASSERT_TRUE(Commit({file, empty}).ok());
    Copy(600, Manifest());
    MakeImports({});
  }
  void MakeImports(CheckpointImports::Options options) {
    options.places = {Place("there")};
    options.connect = [this](const std::string& bucket) {
      s3::ClientOptions client = fake_.ClientOptions();
      client.bucket = bucket;
      client.tries = 3;
      client.stall_timeout = stall_timeout_;
      return s3::Client::Create(client, *Clock::Real(), *Rng::Real());
    };
    imports_ = std::make_unique<CheckpointImports>(std::move(options), *services_, clock_);
    services_->checkpoint_imports = imports_.get();
  }
  ~CheckpointImportsTest() override {
    fake_.Wake();
    imports_.reset();
  }

  std::string Place(const std::string& folder) const {
    return absl::StrCat("s3://", fake_.ClientOptions().bucket, "/", folder);
  }
  // Returns what the server of the job writes into the bucket.
  std::string Manifest() {
    return *DescribeCopy(*board_.FindCheckpoint({JobId{1}, 600}),
                         {{"model.safetensors", absl::StrCat("sha256:", s3::HexSha256(kWeights))},
                          {"state.json", absl::StrCat("sha256:", s3::HexSha256(""))}},
                         *services_);
  }
  void Copy(int64_t step, const std::string& manifest) {
    const auto client = s3::Client::Create(fake_.ClientOptions(), *Clock::Real(), *Rng::Real());
    ASSERT_TRUE(client.ok());
    runtime::CopyFolder folder(**client, "there/", s3::Conditions::kHonoured);
    std::atomic<int64_t> sent = 0;
    const std::vector<runtime::CopyFolder::File> files = {
        {dir_.Write("weights", kWeights),
         {s3::HexSha256(kWeights), static_cast<int64_t>(sizeof(kWeights) - 1)}},
        {dir_.Write("empty", ""), {s3::HexSha256(""), 0}}};
    const absl::Status status = folder.Send({JobId{1}, step}, files, manifest, sent);
    ASSERT_TRUE(status.ok()) << status;
  }
  // Asks until there is an answer.
  absl::StatusOr<v1::Checkpoint> Import(const std::string& place, const std::string& project = "",
                                        v1::BundleService::Stub* as = nullptr) {
    v1::ImportCheckpointRequest request;
    request.set_place(place);
    request.set_project(project);
    v1::ImportCheckpointResponse response;
    grpc::Status status;
    const bool has_answer = WaitUntil([&] {
      v1::BundleService::Stub& bundles = as == nullptr ? *bundles_ : *as;
      const auto context = as == nullptr ? Context() : Context("");
      status = bundles.ImportCheckpoint(context.get(), request, &response);
      return !status.ok() || response.has_checkpoint();
    });
    EXPECT_TRUE(has_answer);
    if (!status.ok()) return FromGrpcStatus(status);
    return response.checkpoint();
  }
  // Asks once.
  absl::Status Ask(const std::string& place, const std::string& user = "anna",
                   const std::string& project = "") {
    access::Caller caller;
    caller.user = user;
    v1::ImportCheckpointRequest request;
    request.set_place(place);
    request.set_project(project);
    return imports_->Ask(caller, request).status();
  }
  std::string Missing(size_t number) const {
    return Place(absl::StrCat("there/checkpoints/9/", number));
  }
  // Asks for two checkpoints that take until fake_.Wake(), so that all others wait.
  void OccupyBothThreads() {
    stall_timeout_ = absl::Minutes(1);
    fake_.Inject(FakeS3::Fault::kHang, 2, "GET", "checkpoints/8/");
    for (const char* step : {"1", "2"}) {
      ASSERT_TRUE(Ask(Place(absl::StrCat("there/checkpoints/8/", step)), "mia").ok());
    }
    ASSERT_TRUE(WaitUntil([this] { return fake_.CountRequests("GET there/checkpoints/8/") == 2; }));
  }
  void DeleteCheckpointsOf(const std::string& job) {
    v1::DeleteJobDataRequest request;
    request.set_name(job);
    request.add_parts(v1::JOB_PART_CHECKPOINTS);
    v1::DeleteJobResponse response;
    const auto status = jobs_->DeleteJobData(Context().get(), request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  // Makes this the newest manifest of the copy.
  void WriteManifest(const std::string& manifest) {
    const std::string name = absl::StrCat("00000000000000000009-", s3::HexSha256(manifest));
    fake_.Write(absl::StrCat("there/checkpoints/1/600/manifests/", name), manifest);
    fake_.Write("there/checkpoints/1/600/latest", name);
  }
  size_t Jobs() const {
    return board_.ListJobs(0, 100, [](const auto&) { return true; }).size();
  }
  std::string Blob(const std::string& content) const {
    return absl::StrCat("there/checkpoints/1/600/blobs/sha256/", s3::HexSha256(content));
  }
  int BlobsAskedFor() const { return fake_.CountRequests("GET there/checkpoints/1/600/blobs/"); }

  static constexpr char kWeights[] = "the weights";
  absl::Duration stall_timeout_ = absl::Seconds(1);
  FakeS3 fake_;
  std::unique_ptr<CheckpointImports> imports_;
};

TEST_F(CheckpointImportsTest, ACopyBecomesACheckpointHere) {
  const auto taken = Import(Place("there/checkpoints/1/600"));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->name(), "jobs/2/checkpoints/600");
  EXPECT_EQ(taken->files_size(), 2);
  const v1::Job record = GetJob("jobs/2");
  EXPECT_EQ(record.state(), v1::JOB_STATE_CANCELLED) << "what runs elsewhere has ended here";
  EXPECT_EQ(record.provenance().imported().job(), "jobs/1");
  EXPECT_EQ(record.resolved_spec().name(), "a");
  const auto weights = board_.FindCheckpoint({JobId{2}, 600})->files.at(0);
  EXPECT_EQ(*blobs_->Read(weights.hash, 0, 100), kWeights);
  v1::CreateJobRequest request;
  *request.mutable_spec() = Spec("a");
  request.mutable_spec()->mutable_train()->set_epochs(1000);
  request.set_from_checkpoint(taken->name());
  v1::Job job;
  const auto status = jobs_->CreateJob(Context().get(), request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(job.provenance().parent_checkpoint(), "jobs/2/checkpoints/600");
}

TEST_F(CheckpointImportsTest, WithoutAStepTheNewestWholeOneIsTaken) {
  const std::string newer = absl::StrReplaceAll(
      Manifest(), {{"checkpoints/600", "checkpoints/700"}, {"\"600\"", "\"700\""}});
  Copy(700, newer);
  fake_.Write("there/checkpoints/1/800/blobs/sha256/x", "no manifest yet");
  const auto taken = Import(Place("there/checkpoints/1"));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->name(), "jobs/2/checkpoints/700");
}

TEST_F(CheckpointImportsTest, OneUserHasOneRecordOfIt) {
  const std::string place = Place("there/checkpoints/1/600");
  ASSERT_EQ(Import(place)->name(), "jobs/2/checkpoints/600");
  const int fetched = fake_.CountRequests("/blobs/");
  EXPECT_EQ(Import(place)->name(), "jobs/2/checkpoints/600");
  EXPECT_EQ(fake_.CountRequests("/blobs/"), fetched) << "no file is fetched twice";
  const auto bert = v1::BundleService::NewStub(Connect(User("bert")));
  const auto theirs = Import(place, "", bert.get());
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  EXPECT_EQ(theirs->name(), "jobs/3/checkpoints/600");
  EXPECT_EQ(board_.FindJob(JobId{3})->record.submission->user, "bert");
}

TEST_F(CheckpointImportsTest, OnlyPlacesThatAreAllowedAreRead) {
  const size_t before = fake_.Requests().size();
  for (const std::string& place : {Place("checkpoints/1/600"), Place("therefore/checkpoints/1/600"),
                                   std::string("s3://other/there/checkpoints/1/600")}) {
    EXPECT_EQ(ErrorReason(Import(place).status()), "PLACE_NOT_ALLOWED") << place;
  }
  for (const std::string& place :
       {Place("there/../here/checkpoints/1/600"), Place("there/checkpoints/x"),
        Place("there//checkpoints/1"), Place("there"), std::string("there/checkpoints/1"),
        Place("there/checkpoints/01/600"), Place("there/checkpoints/1/-1")}) {
    const auto refused = Import(place).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << place;
    EXPECT_THAT(refused.message(), HasSubstr("expected s3://BUCKET/FOLDER/checkpoints/JOB/STEP"));
  }
  EXPECT_EQ(fake_.Requests().size(), before);
  services_->checkpoint_imports = nullptr;
  EXPECT_EQ(ErrorReason(Import(Place("there/checkpoints/1/600")).status()), "PLACE_NOT_ALLOWED");
}

TEST_F(CheckpointImportsTest, WhatIsNotThereIsTold) {
  EXPECT_THAT(Import(Place("there/checkpoints/1/601")).status().message(),
              HasSubstr("there is no whole checkpoint at"));
  EXPECT_TRUE(absl::IsNotFound(Import(Place("there/checkpoints/9")).status()));
  fake_.Inject(FakeS3::Fault::kDenied, 1);
  EXPECT_EQ(ErrorReason(Import(Place("there/checkpoints/1/600")).status()), "S3_ACCESS_DENIED");
  fake_.Remove(Blob(kWeights));
  const auto lost = Import(Place("there/checkpoints/1/600")).status();
  EXPECT_EQ(ErrorReason(lost), "CORRUPT_FILE");
  EXPECT_THAT(lost.message(), HasSubstr("take a newer one"));
  EXPECT_EQ(Jobs(), 1) << "no job without its checkpoint stays";
}

TEST_F(CheckpointImportsTest, DamagedFilesAreNeverTaken) {
  for (const char* content : {"The weights", "the weight", "the weights and more"}) {
    fake_.Write(Blob(kWeights), content);
    const auto refused = Import(Place("there/checkpoints/1/600")).status();
    EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
    EXPECT_THAT(refused.message(), HasSubstr("model.safetensors has"));
  }
  EXPECT_EQ(Jobs(), 1);
  fake_.Write(Blob(kWeights), kWeights);
  EXPECT_TRUE(Import(Place("there/checkpoints/1/600")).ok());
}

TEST_F(CheckpointImportsTest, TroubleOnTheWayPasses) {
  using Fault = FakeS3::Fault;
  for (const Fault fault : {Fault::kInternalError, Fault::kClose, Fault::kCut, Fault::kDrip,
                            Fault::kSlowDown, Fault::kHang}) {
    fake_.Inject(fault, 1, "GET", "blobs");
    // A manifest has some thousand bytes, which drip for a minute.
    if (fault != Fault::kDrip) fake_.Inject(fault, 1, "GET", "manifests");
    const auto taken = Import(Place("there/checkpoints/1/600"));
    ASSERT_TRUE(taken.ok()) << taken.status();
    // Else the next one would find it here.
    v1::DeleteJobRequest request;
    request.set_name(JobName(ParseCheckpointName(taken->name())->job));
    v1::DeleteJobResponse response;
    ASSERT_TRUE(jobs_->DeleteJob(Context().get(), request, &response).ok());
  }
}

TEST_F(CheckpointImportsTest, AStoreThatIsAwayIsToldWithWhatToDo) {
  fake_.Inject(FakeS3::Fault::kInternalError, 3);
  const absl::Status away = Import(Place("there/checkpoints/1/600")).status();
  EXPECT_EQ(ErrorReason(away), "S3_UNAVAILABLE") << away;
  EXPECT_THAT(away.message(), HasSubstr("see that this server reaches the bucket"));
}

TEST_F(CheckpointImportsTest, AnswersForWhichNobodyComesKeepNobodyOut) {
  // More of them than may be under way, and than are kept.
  const size_t count = CheckpointImports::kAnswersMax + 2 * CheckpointImports::kImportsOfUserMax;
  for (size_t i = 0; i < count; ++i) {
    // It is busy until one of the last few has ended.
    ASSERT_TRUE(WaitUntil([&] { return Ask(Missing(i)).ok(); })) << i;
    clock_.Advance(absl::Milliseconds(1));
  }
  EXPECT_TRUE(absl::IsNotFound(Import(Missing(count - 1)).status()));
  EXPECT_TRUE(Ask(Missing(0)).ok()) << "the oldest answer is forgotten, so it begins again";
  EXPECT_TRUE(Import(Place("there/checkpoints/1/600")).ok());
}

TEST_F(CheckpointImportsTest, OneUserDoesNotTakeAllPlaces) {
  OccupyBothThreads();
  for (size_t i = 0; i < CheckpointImports::kImportsOfUserMax; ++i) {
    EXPECT_TRUE(Ask(Missing(i)).ok());
    EXPECT_TRUE(Ask(Missing(i)).ok()) << "it is known";
  }
  const absl::Status busy = Ask(Missing(100));
  EXPECT_EQ(ErrorReason(busy), "SERVER_BUSY");
  EXPECT_THAT(busy.message(), HasSubstr("8 checkpoints are being imported for 'anna'"));
  EXPECT_TRUE(GetRetryDelay(busy).has_value());
  size_t all = 2 + CheckpointImports::kImportsOfUserMax;
  for (int user = 0; all < CheckpointImports::kImportsMax; ++user) {
    for (size_t i = 0; i < CheckpointImports::kImportsOfUserMax; ++i) {
      if (all++ == CheckpointImports::kImportsMax) break;
      EXPECT_TRUE(Ask(Missing(i), absl::StrCat("user", user)).ok());
    }
  }
  EXPECT_THAT(Ask(Missing(0), "bert").message(), HasSubstr("too many checkpoints"));
}

TEST_F(CheckpointImportsTest, TheTimeOfAnImportBeginsWhenItRuns) {
  OccupyBothThreads();
  const std::string place = Place("there/checkpoints/1/600");
  ASSERT_TRUE(Ask(place).ok());
  clock_.Advance(absl::Hours(13));
  fake_.Wake();
  const auto taken = Import(place);
  EXPECT_TRUE(taken.ok()) << taken.status();
}

TEST_F(CheckpointImportsTest, OnlyWhatMayBeAProjectIsOne) {
  for (const std::string& project : {std::string(64, 'a'), std::string("a b")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Ask(Missing(0), "anna", project))) << project;
  }
  EXPECT_TRUE(Ask(Missing(0), "anna", std::string(63, 'a')).ok());
}

TEST_F(CheckpointImportsTest, AJobThatHasLostItsCheckpointGetsNoneAgain) {
  const std::string place = Place("there/checkpoints/1/600");
  ASSERT_EQ(Import(place)->name(), "jobs/2/checkpoints/600");
  DeleteCheckpointsOf("jobs/2");
  EXPECT_EQ(Import(place)->name(), "jobs/3/checkpoints/600");
  EXPECT_EQ(Import(place)->name(), "jobs/3/checkpoints/600");
  DeleteCheckpointsOf("jobs/3");
  EXPECT_EQ(Import(place)->name(), "jobs/4/checkpoints/600");
}

TEST_F(CheckpointImportsTest, AnImportThatWasCutOffGoesOnForHalfADay) {
  const std::string place = Place("there/checkpoints/1/600");
  ASSERT_EQ(Import(place)->name(), "jobs/2/checkpoints/600");
  DeleteCheckpointsOf("jobs/2");
  const std::string content = "of a server that has died";
  const core::CheckpointFile begun{"begun", 100, ContentHash(content)};
  ASSERT_TRUE(blobs_->Append({{JobId{2}, 1}, 600}, begun, 0, content).ok());
  EXPECT_EQ(Import(place)->name(), "jobs/2/checkpoints/600");
  DeleteCheckpointsOf("jobs/2");
  ASSERT_TRUE(blobs_->Append({{JobId{2}, 1}, 600}, begun, 0, content).ok());
  clock_.Advance(absl::Hours(13));
  EXPECT_EQ(Import(place)->name(), "jobs/3/checkpoints/600") << "what has come would soon go";
}

TEST_F(CheckpointImportsTest, OneOfTwoImportsOfACopyMayFail) {
  stall_timeout_ = absl::Minutes(1);
  fake_.Inject(FakeS3::Fault::kHang, 1, "GET", "blobs");
  ASSERT_TRUE(Ask(Place("there/checkpoints/1")).ok());
  ASSERT_TRUE(WaitUntil([this] { return BlobsAskedFor() == 1; }));
  ASSERT_EQ(Import(Place("there/checkpoints/1/600"))->name(), "jobs/2/checkpoints/600");
  fake_.Remove(Blob(kWeights));
  fake_.Wake();
  EXPECT_EQ(ErrorReason(Import(Place("there/checkpoints/1")).status()), "CORRUPT_FILE");
  EXPECT_NE(board_.FindCheckpoint({JobId{2}, 600}), nullptr) << "the other one has it";
}

TEST_F(CheckpointImportsTest, IfBothImportsOfACopyFailNoJobStays) {
  stall_timeout_ = absl::Minutes(1);
  fake_.Inject(FakeS3::Fault::kHang, 2, "GET", "blobs");
  const std::vector<std::string> places = {Place("there/checkpoints/1"),
                                           Place("there/checkpoints/1/600")};
  for (const std::string& place : places) ASSERT_TRUE(Ask(place).ok());
  ASSERT_TRUE(WaitUntil([this] { return BlobsAskedFor() == 2; }));
  EXPECT_EQ(Jobs(), 2) << "they share one";
  fake_.Remove(Blob(kWeights));
  fake_.Wake();
  for (const std::string& place : places) {
    EXPECT_EQ(ErrorReason(Import(place).status()), "CORRUPT_FILE");
  }
  EXPECT_EQ(Jobs(), 1);
}

TEST_F(CheckpointImportsTest, RefusedPlacesAreInTheAuditLog) {
  const std::string place = Place("elsewhere/checkpoints/1/600");
  EXPECT_EQ(ErrorReason(Import(place).status()), "PLACE_NOT_ALLOWED");
  services_->checkpoint_imports = nullptr;
  EXPECT_EQ(ErrorReason(Import(place).status()), "PLACE_NOT_ALLOWED");
  v1::ListAuditEntriesRequest request;
  request.set_only_refused(true);
  v1::ListAuditEntriesResponse audit;
  ASSERT_TRUE(access_->ListAuditEntries(Context("").get(), request, &audit).ok());
  ASSERT_EQ(audit.entries_size(), 2);
  for (const v1::AuditEntry& entry : audit.entries()) {
    EXPECT_EQ(entry.rpc(), "BundleService/ImportCheckpoint");
    EXPECT_EQ(entry.user(), "anna");
    EXPECT_EQ(entry.resource(), place);
    EXPECT_THAT(entry.reason(), HasSubstr("takes no checkpoints from"));
  }
}

TEST_F(CheckpointImportsTest, AHugeManifestIsNotRead) {
  const std::string place = Place("there/checkpoints/1/600");
  std::string manifest = Manifest();
  manifest.resize((size_t{16} << 20) + 1, ' ');
  WriteManifest(manifest);
  const absl::Status refused = Import(place).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("has over 16777216 bytes"));
  manifest.pop_back();
  WriteManifest(manifest);
  const auto taken = Import(place);
  EXPECT_TRUE(taken.ok()) << taken.status();
}

TEST_F(CheckpointImportsTest, ManyManifestsAreNotRead) {
  const std::string folder = "there/checkpoints/1/600/manifests/";
  for (const std::string& key : fake_.Keys(folder)) fake_.Remove(key);
  fake_.Remove("there/checkpoints/1/600/latest");
  const auto write = [&](int number) {
    // Their hashes are wrong.
    fake_.Write(
        absl::StrCat(folder, "0000000000", 1'000'000'000 + number, "-", s3::HexSha256("something")),
        "something else");
  };
  for (int i = 0; i < 100; ++i) write(i);
  EXPECT_TRUE(absl::IsNotFound(Import(Place("there/checkpoints/1/600")).status()));
  write(100);
  const absl::Status refused = Import(Place("there/checkpoints/1/600")).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("has over 100 manifests"));
}

TEST_F(CheckpointImportsTest, AFullFolderIsNotSearched) {
  const size_t there = fake_.Keys("there/checkpoints/1/").size();
  CheckpointImports::Options options;
  options.objects_max = static_cast<int64_t>(there) + 1;
  MakeImports(std::move(options));
  fake_.Write("there/checkpoints/1/500/x", "");
  EXPECT_TRUE(Import(Place("there/checkpoints/1")).ok());
  fake_.Write("there/checkpoints/1/500/y", "");
  const absl::Status refused = Import(Place("there/checkpoints/1")).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("/there/checkpoints/1/STEP"));
  EXPECT_TRUE(Import(Place("there/checkpoints/1/600")).ok());
}

TEST_F(CheckpointImportsTest, AStopEndsIt) {
  fake_.Inject(FakeS3::Fault::kHang, 1, "GET", "blobs");
  v1::ImportCheckpointRequest request;
  request.set_place(Place("there/checkpoints/1/600"));
  v1::ImportCheckpointResponse response;
  ASSERT_TRUE(bundles_->ImportCheckpoint(Context().get(), request, &response).ok());
  ASSERT_TRUE(WaitUntil([this] { return BlobsAskedFor() > 0; }));
  imports_->Stop();
  EXPECT_TRUE(absl::IsUnavailable(Import(request.place()).status()));
}

TEST(CopiedCheckpoint, AManifestIsNotTrusted) {
  const auto text = [](const std::string& file, const std::string& digests,
                       const std::string& rest = "\"job\": {\"name\": \"jobs/1\"}",
                       int format = 1) {
    return absl::StrCat("{\"format\": ", format,
                        ", \"news\": 1, \"checkpoint\": {\"name\": \"jobs/1/checkpoints/6\", "
                        "\"step\": 6, \"files\": [",
                        file, "]}, \"digests\": {", digests, "}, ", rest, "}");
  };
  const std::string hash = ContentHash("x");
  const auto file = [&hash](const std::string& name, int64_t size = 1) {
    return absl::StrCat("{\"name\": \"", name, "\", \"size\": ", size, ", \"hash\": \"", hash,
                        "\"}");
  };
  const std::string digest = absl::StrCat("\"m\": \"sha256:", s3::HexSha256("x"), "\"");
  const auto good = ReadCopy(text(file("m"), digest), "s3://a/checkpoints/1/6");
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(good->bytes, 1);
  EXPECT_EQ(good->digests.at("m"), s3::HexSha256("x"));
  EXPECT_EQ(ErrorReason(ReadCopy(text(file("m"), digest, "\"job\": {}", 2), "p").status()),
            "COPY_TOO_NEW");
  for (const std::string& bad :
       {std::string("no JSON"), std::string("{}"), text("", digest), text(file("m"), ""),
        text(file("../m"), absl::StrReplaceAll(digest, {{"\"m\"", "\"../m\""}})),
        text(file("m", -1), digest), text(absl::StrCat(file("m"), ",", file("m")), digest),
        text(absl::StrReplaceAll(file("m"), {{hash, "md5:1"}}), digest),
        text(file("m"), "\"m\": \"sha256:1\""), text(file("m"), digest, "\"job\": {}"),
        text(file("m"), digest, "\"job\": {\"name\": \"jobs/1\"}", 0)}) {
    EXPECT_EQ(ErrorReason(ReadCopy(bad, "s3://a/checkpoints/1/6").status()), "CORRUPT_FILE") << bad;
  }
}

TEST(CopiedCheckpoint, APlaceHasABucketAFolderAJobAndPerhapsAStep) {
  const auto place = ParseCopyPlace("s3://lab/a/b/checkpoints/12/600/");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->bucket, "lab");
  EXPECT_EQ(place->prefix, "a/b/");
  EXPECT_EQ(place->job, JobId{12});
  EXPECT_EQ(place->step, 600);
  const auto newest = ParseCopyPlace("s3://lab/checkpoints/12");
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->prefix, "");
  EXPECT_EQ(newest->step, std::nullopt);
}

}  // namespace
}  // namespace trainyard::rpc
