// Runs a worker that is root with jobs of several users, who mean no good. The users exist in a
// mount namespace of the test only. The tests need root, and skip without it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "common/base/system_accounts.h"
#include "common/rpc/channel.h"
#include "tests/integration/yard.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"
#include "worker/run_dir/paths.h"
#include "worker/run_dir/records.h"

namespace trainyard::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kAnna = 61'001;
constexpr uid_t kBert = 61'002;
constexpr gid_t kLab = 61'100;

// Moves this thread, and all that it starts, into a mount namespace in which anna and bert have
// accounts.
void MakeAccounts(const TempDir& folder) {
  ASSERT_EQ(unshare(CLONE_NEWNS), 0) << strerror(errno);
  ASSERT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0) << strerror(errno);
  const std::map<std::string, std::string> added = {
      {"/etc/passwd", absl::StrCat("anna:x:", kAnna, ":", kAnna, ":Anna:/home/anna:/bin/sh\n",
                                   "bert:x:", kBert, ":", kBert, ":Bert:/home/bert:/bin/sh\n")},
      {"/etc/group",
       absl::StrCat("anna:x:", kAnna, ":\nbert:x:", kBert, ":\nlab:x:", kLab, ":anna\n")}};
  for (const auto& [path, lines] : added) {
    const std::string copy = folder.Write(std::filesystem::path(path).filename().string(),
                                          absl::StrCat(ReadFile(path).value(), lines));
    ASSERT_EQ(mount(copy.c_str(), path.c_str(), nullptr, MS_BIND, nullptr), 0) << strerror(errno);
  }
}

struct stat StatOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info;
}

unsigned ModeOf(const std::string& path) {
  return StatOf(path).st_mode & 07777U;
}

// Returns what a process says of itself after `key`: "61001 61001 61001 61001" for "Uid".
std::string StatusOf(int64_t pid, const std::string& key) {
  const auto text = ReadFile(absl::StrCat("/proc/", pid, "/status"));
  for (absl::string_view line : absl::StrSplit(text.value_or(""), '\n')) {
    if (!absl::ConsumePrefix(&line, absl::StrCat(key, ":"))) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    return absl::StrJoin(words, " ");
  }
  return "";
}

class OwnerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (geteuid() != 0) return;
    accounts_ = new TempDir;
    MakeAccounts(*accounts_);
  }
  static void TearDownTestSuite() { delete accounts_; }

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, who runs jobs as their owners";
    ASSERT_FALSE(HasFatalFailure());
  }

  // Starts a server and a worker that is root.
  void Start(std::vector<std::string> worker_flags = {"--run_as", "owner"}) {
    Yard::Options options;
    options.cpu_devices = 2;
    options.worker_flags = std::move(worker_flags);
    options.worker_flags.push_back("--share_cpus");
    options.worker_environment = {{"TY_TEST_SECRET", "secret of the worker"}};
    yard_ = std::make_unique<Yard>(std::move(options));
    // The folder of a test is closed to others, and owners of jobs have to pass through it.
    ASSERT_EQ(chmod(yard_->File("").c_str(), 0711), 0);
    yard_->Start();
  }

  static v1::JobSpec Spec(int epochs) {
    v1::JobSpec spec;
    const std::string json = absl::StrCat(
        R"({"name": "of-owner", "model": {"convnet": {"channels": [16, 32]}},
            "data": {"dataset": "glyphs", "train_size": 2000, "test_size": 100},
            "train": {"epochs": )",
        epochs,
        R"(, "global_batch": 50, "seed": 3}, "optimizer": {"sgd": {"lr": 0.05}},
            "on_disconnect": {"keep": "0s"}, "max_retries": 0})");
    const auto parsed = google::protobuf::util::JsonStringToMessage(json, &spec);
    EXPECT_TRUE(parsed.ok()) << parsed.ToString();
    return spec;
  }

  // Submits a job of this user. Returns its name.
  std::string SubmitAs(const std::string& user, int epochs = 1) {
    grpc::ClientContext context;
    context.AddMetadata("trainyard-as", user);
    rpc::SetTimeout(context, kPatience);
    v1::CreateJobRequest request;
    *request.mutable_spec() = Spec(epochs);
    v1::Job job;
    const grpc::Status status = yard_->jobs().CreateJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job.name();
  }

  std::vector<std::string> Reasons(const std::string& job) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::ExplainJobRequest request;
    request.set_name(job);
    v1::Explanation explanation;
    const grpc::Status status = yard_->jobs().ExplainJob(&context, request, &explanation);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {explanation.reasons().begin(), explanation.reasons().end()};
  }

  void Cancel(const std::string& job) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::CancelJobRequest request;
    request.set_name(job);
    v1::Job cancelled;
    EXPECT_TRUE(yard_->jobs().CancelJob(&context, request, &cancelled).ok());
  }

  // Runs a line of the shell as a user, and returns its exit code and output.
  ProcessResult As(uid_t uid, const std::string& line) {
    Process::Options options;
    options.args = {"/usr/bin/setpriv",
                    absl::StrCat("--reuid=", uid),
                    absl::StrCat("--regid=", uid),
                    "--clear-groups",
                    "/bin/sh",
                    "-c",
                    line};
    auto result = RunProcess(std::move(options), accounts_->path(), kPatience);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult();
  }

  // Returns the pids of the supervisor and of the ranks.
  std::vector<int64_t> PidsOf(const std::string& run_dir) {
    const auto record = run_dir::ReadSupervisorRecord(run_dir::RunDir(run_dir));
    EXPECT_TRUE(record.ok()) << record.status();
    if (!record.ok()) return {};
    std::vector<int64_t> pids = {record->pid};
    for (const auto& rank : record->ranks) pids.push_back(rank.pid);
    return pids;
  }

  // Everything that the server has of a job's rank 0.
  std::string LogOf(const std::string& job) {
    return yard_->Cli({"logs", std::string(absl::StripPrefix(job, "jobs/"))}).out;
  }

  static TempDir* accounts_;
  std::unique_ptr<Yard> yard_;
};

TempDir* OwnerTest::accounts_ = nullptr;

void ExpectIsOfOwner(int64_t pid, uid_t uid, const std::string& groups) {
  const std::string four = absl::StrCat(uid, " ", uid, " ", uid, " ", uid);
  EXPECT_EQ(StatusOf(pid, "Uid"), four);
  EXPECT_EQ(StatusOf(pid, "Gid"), four);
  EXPECT_EQ(StatusOf(pid, "Groups"), groups);
  EXPECT_EQ(StatusOf(pid, "CapPrm"), "0000000000000000");
  EXPECT_EQ(StatusOf(pid, "CapEff"), "0000000000000000");
  EXPECT_EQ(StatusOf(pid, "NoNewPrivs"), "1");
  EXPECT_EQ(StatusOf(pid, "Umask"), "0077");
  EXPECT_EQ(ProcessVariable(pid, "TY_TEST_SECRET"), "");
}

TEST_F(OwnerTest, SupervisorAndRanksAreTheOwnersInEveryRespect) {
  Start();
  const std::string annas = SubmitAs("anna", 500);
  const std::string berts = SubmitAs("bert", 500);
  ASSERT_TRUE(yard_->WaitForStep(annas, 1));
  ASSERT_TRUE(yard_->WaitForStep(berts, 1));
  const std::string annas_dir = yard_->RunDir(annas, 1);
  const std::string berts_dir = yard_->RunDir(berts, 1);
  const std::vector<int64_t> annas_pids = PidsOf(annas_dir);
  EXPECT_EQ(annas_pids.size(), 2U);
  for (const int64_t pid : annas_pids) {
    ExpectIsOfOwner(pid, kAnna, absl::StrCat(kAnna, " ", kLab));
    EXPECT_EQ(ProcessVariable(pid, "HOME"), "/home/anna");
    EXPECT_EQ(ProcessVariable(pid, "USER"), "anna");
  }
  for (const int64_t pid : PidsOf(berts_dir)) ExpectIsOfOwner(pid, kBert, absl::StrCat(kBert));

  // Files belong to the owner, whoever has written them.
  EXPECT_EQ(ModeOf(annas_dir), 0700U);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(annas_dir)) {
    EXPECT_EQ(StatOf(entry.path().string()).st_uid, kAnna) << entry.path();
  }
  // The folders above belong to root, and owners pass through them without seeing what is there.
  for (const std::string& folder :
       {yard_->WorkerStateDir(), JoinPath(yard_->WorkerStateDir(), "attempts"),
        std::filesystem::path(annas_dir).parent_path().string()}) {
    EXPECT_EQ(ModeOf(folder), 0711U) << folder;
    EXPECT_EQ(StatOf(folder).st_uid, 0U) << folder;
  }
  EXPECT_EQ(ModeOf(JoinPath(yard_->WorkerStateDir(), "uid")), 0600U);

  EXPECT_EQ(As(kAnna, absl::StrCat("cat ", annas_dir, "/assignment.json")).exit_code, 0);
  for (const char* line : {"cat %/assignment.json", "ls %", "ls %/checkpoints", "echo > %/new",
                           "mv % %.old", "rm -r %", "cat %/ranks/0/log"}) {
    const std::string command = absl::StrJoin(absl::StrSplit(line, '%'), annas_dir);
    EXPECT_NE(As(kBert, command).exit_code, 0) << command;
  }
  EXPECT_NE(As(kAnna, absl::StrCat("ls ", yard_->WorkerStateDir())).exit_code, 0);
  EXPECT_NE(As(kAnna, absl::StrCat("mv ", annas_dir, " ", annas_dir, ".old")).exit_code, 0);
  EXPECT_NE(As(kBert, absl::StrCat("kill ", annas_pids[0])).exit_code, 0);

  // Another daemon takes over what runs, and can still stop it.
  yard_->KillWorker();
  yard_->StartWorker();
  Cancel(berts);
  EXPECT_EQ(yard_->WaitForEnd(berts).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(IsProcessAlive(annas_pids[0], ReadProcess(annas_pids[0])->start_ticks));
  Cancel(annas);
  EXPECT_EQ(yard_->WaitForEnd(annas).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(OwnerTest, AJobOfAnOwnerEndsWithLogMetricsAndCheckpoints) {
  Start();
  const std::string job = SubmitAs("anna");
  const v1::Job ended = yard_->WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_FALSE(yard_->Metrics(job, "train.loss").empty());
  EXPECT_EQ(
      yard_->Cli({"checkpoints", "ls", std::string(absl::StripPrefix(job, "jobs/"))}).exit_code, 0);
  EXPECT_TRUE(WaitUntil([&] { return !FileExists(yard_->RunDir(job, 1)); }, kPatience));
}

TEST_F(OwnerTest, ASupervisorThatIsKilledIsCleanedUpAfter) {
  Start();
  const std::string job = SubmitAs("anna", 500);
  ASSERT_TRUE(yard_->WaitForStep(job, 1));
  const std::vector<int64_t> pids = PidsOf(yard_->RunDir(job, 1));
  ASSERT_EQ(pids.size(), 2U);
  const int64_t start_ticks = ReadProcess(pids[1])->start_ticks;
  ASSERT_EQ(As(kAnna, absl::StrCat("kill -9 ", pids[0])).exit_code, 0);
  const v1::Job ended = yard_->WaitForEnd(job);
  EXPECT_EQ(ended.failure().reason(), "SUPERVISOR_DIED");
  EXPECT_FALSE(IsProcessAlive(pids[1], start_ticks));
}

TEST_F(OwnerTest, AnOwnerWithoutAnAccountCostsNothingAndIsExplained) {
  Start();
  const std::string carls = SubmitAs("carl");
  ASSERT_TRUE(yard_->WaitForJob(carls, [](const v1::Job& job) {
    return job.attempt() == 1 && job.state() == v1::JOB_STATE_QUEUED;
  }));
  EXPECT_THAT(Reasons(carls),
              Contains("worker alpha does not run jobs of carl: this host has no account 'carl' "
                       "(2 devices)"));
  // The worker has said from the beginning that it runs none of root.
  const std::string spec = accounts_->Write("roots.yaml", SmallSpec("of-root", 1, 1, 256));
  const ProcessResult refused = yard_->Cli({"submit", spec});
  EXPECT_EQ(refused.exit_code, 6) << refused.out << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("it runs no jobs of root unless it is started with "
                                     "--root_jobs"));
  EXPECT_EQ(yard_->Cli({"submit", spec, "--wait-for-devices"}).exit_code, 0);
  EXPECT_EQ(yard_->WaitForEnd(SubmitAs("anna")).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(OwnerTest, DataSetsAreListedAsNobody) {
  const TempDir shared;
  ASSERT_EQ(chmod(shared.path().c_str(), 0755), 0);
  const std::string trainer = shared.Write("trainer", R"(#!/bin/sh
id=$(id -u)
echo '{"splits": [{"dataset": "images", "path": "seen-by-'$id'", "split": "train"}]}'
)");
  ASSERT_EQ(chmod(trainer.c_str(), 0755), 0);
  ASSERT_EQ(mkdir(shared.File("data").c_str(), 0755), 0);
  Start({"--run_as", "owner", "--trainer", trainer, "--dataset_dir", shared.File("data")});
  const auto nobody = FindSystemAccount("nobody");
  ASSERT_TRUE(nobody.ok()) << nobody.status();
  std::string list;
  EXPECT_TRUE(WaitUntil(
      [&] {
        list = yard_->Cli({"data", "ls", "-o", "json"}).out;
        return list.find("seen-by-") != std::string::npos;
      },
      kPatience));
  EXPECT_THAT(list, HasSubstr(absl::StrCat("seen-by-", nobody->uid, "\"")));
}

TEST_F(OwnerTest, CodeThatTravelsIsForItsOwnerAlone) {
  const TempDir shared;
  ASSERT_EQ(chmod(shared.path().c_str(), 0755), 0);
  ASSERT_TRUE(MakeDirectories(shared.File("project/lib"), 0755).ok());
  ASSERT_EQ(mkdir(shared.File("open").c_str(), 0755), 0);
  ASSERT_EQ(chmod(shared.File("open").c_str(), 01777), 0);
  shared.Write("project/lib/secret.py", "NAME = 'of the owner'\n");
  shared.Write("project/run.sh",
               absl::StrCat("cat lib/secret.py && touch written && touch ", shared.File("open"),
                            "/up-$(id -u)\n", "while [ ! -e ", shared.File("open"),
                            "/go ]; do sleep 0.05; done\n"));
  Start();
  const std::string spec =
      absl::StrCat("name: travels\ndevices: 1\nprogram:\n  code: ", shared.File("project"),
                   "\n  command: [sh, run.sh]\n");
  const std::map<std::string, std::pair<uid_t, uid_t>> jobs = {
      {yard_->Submit(spec, {"--as", "anna"}), {kAnna, kBert}},
      {yard_->Submit(spec, {"--as", "bert"}), {kBert, kAnna}}};
  for (const auto& [job, users] : jobs) {
    const auto [owner, other] = users;
    const std::string mark = shared.File(absl::StrCat("open/up-", owner));
    ASSERT_TRUE(WaitUntil([&] { return FileExists(mark); }, kPatience)) << LogOf(job);
    const std::string code = JoinPath(yard_->RunDir(job, 1), "code");
    EXPECT_EQ(ModeOf(code), 0700U);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(code)) {
      EXPECT_EQ(StatOf(entry.path().string()).st_uid, owner) << entry.path();
    }
    for (const char* line : {"ls %", "cat %/lib/secret.py", "cat %/written"}) {
      const std::string command = absl::StrJoin(absl::StrSplit(line, '%'), code);
      EXPECT_EQ(As(owner, command).exit_code, 0) << command;
      EXPECT_NE(As(other, command).exit_code, 0) << command;
    }
  }
  // The archive from which both copies come is the worker's own.
  const std::string cache = JoinPath(yard_->WorkerStateDir(), "code");
  EXPECT_EQ(ModeOf(cache), 0700U);
  EXPECT_EQ(StatOf(cache).st_uid, 0U);
  EXPECT_EQ(ListDirectory(cache).value().size(), 1U);
  EXPECT_NE(As(kAnna, absl::StrCat("cat ", cache, "/*")).exit_code, 0);
  shared.Write("open/go", "");
  for (const auto& [job, users] : jobs) {
    EXPECT_EQ(yard_->WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED) << LogOf(job);
    EXPECT_EQ(LogOf(job), "NAME = 'of the owner'\n");
  }
}

TEST_F(OwnerTest, RootsOwnJobsRunIfTheFlagSaysSo) {
  Start({"--run_as", "owner", "--root_jobs"});
  EXPECT_EQ(yard_->WaitForEnd(SubmitAs("root")).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(OwnerTest, AWorkerOfRootItselfRunsJobsOfRootOnly) {
  Start({});
  const std::string annas = SubmitAs("anna");
  EXPECT_EQ(yard_->WaitForEnd(SubmitAs("root")).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard_->GetJob(annas).state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(Reasons(annas), Contains("worker alpha runs jobs of root only (2 devices)"));
}

// A trainer that makes anna's run directory a field of traps, and trains for anybody else.
constexpr char kHostileTrainer[] = R"(#!/bin/sh
S=$SHARED
[ $USER = anna ] || exec $TRAINER "$@"
cd $TRAINYARD_RUN_DIR || exit 1
pid=$(cat $S/worker-pid)
echo 'the log of anna'
rm -f assignment.json lease ranks/0/metrics.jsonl ranks/0/progress.json ranks/0/trace.jsonl
ln -s $S/secret assignment.json
ln -s $S/victim lease
mkfifo ranks/0/metrics.jsonl ranks/0/progress.json ranks/0/result.json lease.tmp.$pid
mkfifo exit.json.tmp.$pid ranks/0/device_metrics.jsonl
ln -s /proc/self/environ ranks/0/trace.jsonl
mv ranks/0/log ranks/0/log.old; ln -s $S/secret ranks/0/log
ln $S/secret hard-link 2>/dev/null
mkdir -p checkpoints/step-1 checkpoints/step-2 checkpoints/step-3
mkfifo checkpoints/step-1/MANIFEST
ln -s $S/secret checkpoints/step-2/MANIFEST
cp $S/MANIFEST checkpoints/step-3/MANIFEST; ln -s $S/secret checkpoints/step-3/model.safetensors
ln -s $S/checkpoint checkpoints/step-7
rm -rf control; ln -s $S/folder control
ln -s $S/folder resume
mkdir closed; ln -s $S/folder closed/inside; chmod 000 closed
touch $S/open/planted
while [ ! -e $S/open/go ]; do sleep 0.05; done
rm -f exit.json; ln -s $S/secret exit.json
exec sleep 1000
)";

void Replace(std::string& text, const std::string& what, const std::string& by) {
  text.replace(text.find(what), what.size(), by);
}

// Makes the files of root that the traps lead to, and the trainer.
std::string MakeTraps(const TempDir& shared) {
  EXPECT_EQ(chmod(shared.path().c_str(), 0755), 0);
  shared.Write("secret", "SECRET OF ROOT");
  EXPECT_EQ(chmod(shared.File("secret").c_str(), 0600), 0);
  shared.Write("victim", "untouched");
  for (const char* name : {"folder", "checkpoint", "open"}) {
    EXPECT_EQ(mkdir(shared.File(name).c_str(), 0755), 0);
  }
  EXPECT_EQ(chmod(shared.File("open").c_str(), 01777), 0);
  shared.Write("folder/precious", "x");
  shared.Write("checkpoint/MANIFEST", R"({"format": 1, "step": 7, "files": []})");
  shared.Write("MANIFEST", R"({"format": 1, "step": 3, "files": [{"name": "model.safetensors", )"
                           R"("size": 14, "hash": "xxh3-128:0123456789abcdef0123456789abcdef"}]})");
  std::string script = kHostileTrainer;
  Replace(script, "$SHARED", shared.path());
  Replace(script, "$TRAINER", Yard::Binary("trainyard-trainer"));
  std::string trainer = shared.Write("trainer", script);
  EXPECT_EQ(chmod(trainer.c_str(), 0755), 0);
  return trainer;
}

TEST_F(OwnerTest, TrapsInARunDirectoryLeadRootNowhere) {
  const TempDir shared;
  const std::string trainer = MakeTraps(shared);
  Start({"--run_as", "owner", "--trainer", trainer});
  shared.Write("worker-pid", absl::StrCat(yard_->worker()->pid()));
  const std::string annas = SubmitAs("anna");
  ASSERT_TRUE(WaitUntil([&] { return FileExists(shared.File("open/planted")); }, kPatience));

  // Another user's job is not held up by any of it.
  const std::string berts = SubmitAs("bert");
  EXPECT_EQ(yard_->WaitForEnd(berts).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_FALSE(yard_->Metrics(berts, "train.loss").empty());

  // The request to stop would go to a folder of root's, where anna may not write.
  Cancel(annas);
  EXPECT_TRUE(WaitUntil(
      [&] { return yard_->worker()->Err().find("control/stop") != std::string::npos; }, kPatience));
  EXPECT_THAT(ListDirectory(shared.File("folder")).value(), ::testing::ElementsAre("precious"));

  // The end of the attempt is a link as well. What anna has left running ends with it.
  const std::vector<int64_t> pids = PidsOf(yard_->RunDir(annas, 1));
  EXPECT_EQ(As(kAnna, absl::StrCat("touch ", shared.File("open/go"))).exit_code, 0);
  EXPECT_EQ(yard_->WaitForEnd(annas).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(WaitUntil([&] { return !FileExists(yard_->RunDir(annas, 1)); }, kPatience));
  for (const int64_t pid : pids) {
    EXPECT_TRUE(WaitUntil([&] { return !ReadProcess(pid).ok(); }, kPatience)) << pid;
  }
  EXPECT_TRUE(yard_->worker()->running());

  // Nothing of root's was changed, or has got to the server.
  EXPECT_EQ(ReadFile(shared.File("secret")).value(), "SECRET OF ROOT");
  EXPECT_EQ(ReadFile(shared.File("victim")).value(), "untouched");
  EXPECT_THAT(ListDirectory(shared.File("folder")).value(), ::testing::ElementsAre("precious"));
  EXPECT_THAT(LogOf(annas), Not(HasSubstr("SECRET")));
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(yard_->server_state_dir())) {
    if (!entry.is_regular_file()) continue;
    const auto content = ReadFile(entry.path().string());
    EXPECT_THAT(content.value_or(""), Not(HasSubstr("SECRET OF ROOT"))) << entry.path();
    EXPECT_THAT(content.value_or(""), Not(HasSubstr("secret of the worker"))) << entry.path();
  }
}

TEST_F(OwnerTest, AStateDirectoryThatOthersCanChangeIsRefused) {
  const TempDir folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0711), 0);
  const auto run = [&](const std::string& state_dir, const char* run_as) {
    Process::Options options;
    options.args = {Yard::Binary("trainyard-worker"),
                    "--server",
                    "unix:/nowhere",
                    "--state_dir",
                    state_dir,
                    "--run_as",
                    run_as};
    auto result = RunProcess(std::move(options), accounts_->path(), kPatience);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->exit_code, 1);
    return result->err;
  };
  for (const char* run_as : {"self", "owner"}) {
    const std::string open = folder.File(absl::StrCat("open-", run_as));
    ASSERT_EQ(mkdir(open.c_str(), 0700), 0);
    ASSERT_EQ(chmod(open.c_str(), 0777), 0);
    EXPECT_THAT(run(open, run_as), HasSubstr("chmod go-w"));
    const std::string annas = folder.File(absl::StrCat("annas-", run_as));
    ASSERT_EQ(mkdir(annas.c_str(), 0700), 0);
    ASSERT_EQ(chown(annas.c_str(), kAnna, kAnna), 0);
    EXPECT_THAT(run(annas, run_as), HasSubstr("belongs to uid 61001"));
  }
  ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
  EXPECT_THAT(run(folder.File("new"), "owner"), HasSubstr("owners of jobs cannot reach"));
}

}  // namespace
}  // namespace trainyard::testing
