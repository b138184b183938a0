// Tests the kit for a GPU machine: all of it on the emulated device, and how it keeps and takes up
// results with a program that only pretends to measure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kPatience = absl::Seconds(200);
constexpr char kPython[] = "/usr/bin/python3";

// A measurement of a network fails, or waits, until the file `mended` appears.
constexpr char kPretender[] = R"(#!/bin/sh
echo "$*" >>FOLDER/calls
case "$*" in
  *--roofline*) exit 0 ;;
esac
[ -e FOLDER/mended ] || TROUBLE
echo "1 ms a step"
)";

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

class GpuKit : public ::testing::Test {
 protected:
  // Makes a program that does this as long as it is not mended.
  void Pretend(const std::string& trouble) {
    ASSERT_TRUE(MakeDirectories(folder_.File("bin")).ok());
    ASSERT_TRUE(MakeDirectories(folder_.File("bundle")).ok());
    std::filesystem::create_symlink(SourcePath("tests/bench"), folder_.File("bundle/bench"));
    WriteProgram(
        "bin/bench_gpu_on_cpu",
        absl::StrReplaceAll(kPretender, {{"FOLDER", folder_.path()}, {"TROUBLE", trouble}}));
  }

  void WriteProgram(const std::string& name, const std::string& text) {
    std::filesystem::permissions(folder_.Write(name, text), std::filesystem::perms::owner_all);
  }

  Process::Options Kit(const std::vector<std::string>& flags) {
    Process::Options options;
    options.args = {kPython,
                    "-B",
                    SourcePath("tests/bench/gpu_kit/kit.py"),
                    "--bundle",
                    folder_.File("bundle"),
                    "--programs",
                    folder_.File("bin")};
    options.args.insert(options.args.end(), flags.begin(), flags.end());
    options.args.push_back(out_);
    return options;
  }

  ProcessResult Run(Process::Options options) {
    const absl::StatusOr<ProcessResult> result =
        RunProcess(std::move(options), folder_.path(), kPatience);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult();
  }

  std::string Summary() const { return ReadFile(JoinPath(out_, "summary.md")).value_or(""); }

  const TempDir folder_;
  const std::string out_ = folder_.File("out");
};

TEST_F(GpuKit, AStepThatFailedIsTriedAgainWhereItsPartIsNamed) {
  Pretend("{ echo 'bench_gpu: broken'; exit 1; }");
  const ProcessResult first = Run(Kit({"--part", "untuned"}));
  EXPECT_EQ(first.exit_code, 1) << first.out << first.err;
  EXPECT_THAT(Summary(), HasSubstr("| smoke:4 | failed |"));
  EXPECT_THAT(Summary(), HasSubstr("bench_gpu: broken"));
  EXPECT_THAT(NamesIn(out_), UnorderedElementsAre("summary.md", "untuned.tar.gz", "plans.tar.gz"));
  // It stands in the way of no other part.
  EXPECT_THAT(Run(Kit({"--list"})).out, HasSubstr("untuned    done       2 failed"));
  folder_.Write("mended", "");
  const ProcessResult second = Run(Kit({"--part", "untuned"}));
  EXPECT_EQ(second.exit_code, 0) << second.out << second.err;
  EXPECT_THAT(second.out, AllOf(HasSubstr("untuned: smoke:4: passed"), Not(HasSubstr("machine: "))))
      << "what passed is not run again";
  EXPECT_THAT(Summary(), HasSubstr("done; 4 steps passed, 0 failed"));
}

TEST_F(GpuKit, TestsThatFailAreNamedAndThoseThatAllSkipHaveFailedBesideAGpu) {
  Pretend("exit 1");
  WriteProgram("bin/cuda_steps_on_cpu", R"(#!/bin/sh
echo '[       OK ] Steps.AreFast (1 ms)
[  FAILED  ] Steps.AreRight (2 ms)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Steps.AreRight'
exit 1
)");
  WriteProgram("bin/cuda_executable_on_cpu", "#!/bin/sh\necho '[  SKIPPED ] no driver'\n");
  WriteProgram("bin/cuda_batch_norm_on_cpu", "#!/bin/sh\necho '[ RUN      ] Norm.Ends'\nexit 3\n");
  EXPECT_EQ(Run(Kit({"--part", "untuned"})).exit_code, 1);
  EXPECT_THAT(Summary(), HasSubstr("1 passed, 1 failed, 0 skipped: Steps.AreRight |"));
  EXPECT_THAT(Summary(), HasSubstr("| test cuda_executable | failed |"));
  EXPECT_THAT(Summary(), HasSubstr("ended with status 3 in Norm.Ends |"));
}

TEST_F(GpuKit, AMistakeOfThePartIsToldAndCostsNoOther) {
  Pretend("exit 1");
  // The part `sanitizer` reads these results.
  ASSERT_EQ(Run(Kit({"--part", "untuned"})).exit_code, 1);
  Process::Options spoil;
  spoil.args = {"/bin/sh", "-c",
                absl::StrCat("cd ", out_,
                             " && tar -xzf untuned.tar.gz && echo '{' >untuned/smoke_4.json && "
                             "tar -czf untuned.tar.gz untuned && rm -r untuned")};
  ASSERT_EQ(Run(std::move(spoil)).exit_code, 0);
  EXPECT_EQ(Run(Kit({"--part", "sanitizer", "--part", "gpt2"})).exit_code, 1);
  EXPECT_THAT(Summary(), HasSubstr("| the kit itself | failed | 0 | JSONDecodeError"));
  EXPECT_THAT(Summary(), HasSubstr("| beside compiled PyTorch | failed |"));
}

TEST_F(GpuKit, ACallThatIsStoppedGoesOnInTheNext) {
  Pretend("exec sleep 100");
  auto stopped = Process::Start(Kit({"--part", "untuned"}));
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  ASSERT_TRUE(WaitUntil([&] {
    return absl::StrContains(ReadFile(folder_.File("calls")).value_or(""), "--net smoke ");
  }));
  (*stopped)->Signal(SIGTERM);
  ASSERT_TRUE((*stopped)->Wait(kPatience).ok());
  EXPECT_THAT(Summary(),
              HasSubstr("not finished: the next call goes on; 2 steps passed, 0 failed"));
  EXPECT_THAT(Summary(), HasSubstr("| smoke:4 | interrupted |"));
  folder_.Write("mended", "");
  const ProcessResult next = Run(Kit({"--part", "untuned"}));
  EXPECT_EQ(next.exit_code, 0) << next.out << next.err;
  EXPECT_THAT(next.out, Not(HasSubstr("rates: ")));
  EXPECT_THAT(Summary(), HasSubstr("done; 4 steps passed, 0 failed"));
}

TEST_F(GpuKit, AnArchiveThatCannotBeReadEndsTheCall) {
  Pretend("exit 1");
  ASSERT_TRUE(MakeDirectories(out_).ok());
  folder_.Write("out/plans.tar.gz", "no archive");
  const ProcessResult result = Run(Kit({"--list"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("plans.tar.gz cannot be read"));
}

TEST_F(GpuKit, APartThatDoesNotExistIsTold) {
  const ProcessResult result = Run(Kit({"--part", "speed"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("choose from 'untuned', 'sanitizer', 'resnet50'"));
}

// A dry run of all parts, with a GPU and tools of NVIDIA's that are not there.
class DryRun : public GpuKit {
 protected:
  void SetUp() override {
    Process::Options bundle;
    bundle.args = {SourcePath("scripts/gpu_bundle.sh"),
                   BinaryPath(""),
                   folder_.File("bundle"),
                   "bench_gpu_on_cpu",
                   "cuda_batch_norm_on_cpu",
                   "trainyard",
                   "trainyard-server",
                   "trainyard-worker",
                   "trainyard-supervisor",
                   "trainyard-emulated-trainer-cuda"};
    bundle.environment = {{"XZ_PRESET", "none"}};
    const ProcessResult made = Run(std::move(bundle));
    ASSERT_EQ(made.exit_code, 0) << made.out << made.err;
    WriteTool("compute-sanitizer", "========= ERROR SUMMARY: 0 errors");
    WriteTool("ncu", "Memory Throughput % 50");
    folder_.Write("gpus", "driver 570.86.10\ngpu GPU-aa00 name=NVIDIA_H200 memory=150754820096\n");
  }

  // A tool that runs the program behind its flags, and says this.
  void WriteTool(const std::string& name, const std::string& words) {
    ASSERT_TRUE(MakeDirectories(folder_.File("tools")).ok());
    WriteProgram(absl::StrCat("tools/", name),
                 absl::StrCat("#!/bin/sh\nwhile [ \"${1#--}\" != \"$1\" ]; do shift 2; done\n"
                              "\"$@\" || exit\necho '",
                              words, "'\n"));
  }

  ProcessResult RunBundle(const std::vector<std::string>& flags) {
    Process::Options session;
    session.args = {folder_.File("bundle/run.sh")};
    session.args.insert(session.args.end(), flags.begin(), flags.end());
    session.environment = {
        {"PYTHON", kPython},
        {"PATH", absl::StrCat(folder_.File("tools"), ":/usr/bin:/bin")},
        {"GTEST_FILTER", "*WithoutBatchNormMakeNoDifference*:*AreNotTheWholeBatch*"},
        {"GOMP_SPINCOUNT", "1000"},
        {"TRAINYARD_NVML", FAKE_NVML},
        {"FAKE_NVML_STATE", folder_.File("gpus")}};
    return Run(std::move(session));
  }
};

TEST_F(DryRun, EveryPartRunsOnTheEmulatedDevice) {
  const ProcessResult first = RunBundle({"--part", "untuned", out_});
  EXPECT_EQ(first.exit_code, 0) << first.out << first.err;
  EXPECT_THAT(Summary(), HasSubstr("| test cuda_batch_norm | passed |"));
  EXPECT_THAT(Summary(), HasSubstr("## job: "));
  EXPECT_THAT(Summary(), HasSubstr("not begun; 0 steps passed"));
  // The results are carried to another folder, as to another machine.
  const std::string carried = folder_.File("carried");
  const ProcessResult rest = RunBundle({"--from", out_, carried});
  EXPECT_EQ(rest.exit_code, 0) << rest.out << rest.err;
  EXPECT_THAT(rest.out, Not(HasSubstr("untuned: ")));
  const std::string summary = ReadFile(JoinPath(carried, "summary.md")).value_or("");
  for (const char* step :
       {"test cuda_batch_norm", "gpt2-smoke:2", "refused plans gpt2-smoke:2",
        "memcheck smoke:2 f16", "racecheck smoke:2 f16", "synccheck smoke:2 f16", "tune smoke:4",
        "beside PyTorch", "ncu smoke:4", "tune gpt2-smoke:2 --deterministic",
        "beside compiled PyTorch", "service", "staged", "killed", "candidates agree smoke:4 bf16",
        "candidates agree gpt2-smoke:2 f32"}) {
    EXPECT_THAT(summary, HasSubstr(absl::StrCat("| ", step, " | passed |")));
  }
  EXPECT_THAT(summary,
              HasSubstr("candidates of 13 were compared, of 9 with our own kernels, 0 refused"));
  EXPECT_THAT(summary, HasSubstr("| smoke:4 |")) << "the table of the comparison";
  EXPECT_THAT(summary, Not(HasSubstr("| failed |")));
  EXPECT_THAT(NamesIn(carried), UnorderedElementsAre("summary.md", "plans.tar.gz", "untuned.tar.gz",
                                                     "sanitizer.tar.gz", "resnet50.tar.gz",
                                                     "gpt2.tar.gz", "job.tar.gz", "tests.tar.gz"));
  const ProcessResult nothing = RunBundle({carried});
  EXPECT_EQ(nothing.exit_code, 0) << nothing.out << nothing.err;
  EXPECT_THAT(nothing.out, Not(HasSubstr("passed after")));
}

}  // namespace
}  // namespace trainyard::testing
