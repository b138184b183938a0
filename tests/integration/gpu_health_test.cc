// Tests server, worker and client with GPUs that a file describes: how they are shown, when they
// are offered, and what happens to a job on a GPU that fails. The ranks are shell scripts.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/faults/report.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::nlohmann::json;
using ::trainyard::v1::Job;

// A rank that reports its progress and continues until $S/go exists. It stops when it is asked to.
constexpr char kTrainer[] = R"(
D=$TRAINYARD_RUN_DIR/ranks/$TRAINYARD_RANK
trap 'exit 15' TERM
echo '{"step":5,"name":"train.loss","value":0.25,"time":1}' >> $D/metrics.jsonl
echo '{"state":"running","step":5,"total_steps":10}' > $D/p; mv $D/p $D/progress.json
while [ ! -e $S/go ]; do sleep 0.05; done
)";

// Written as `NAME -> words of its line`; see fake_nvml.cc.
using Gpus = std::map<std::string, std::string>;

class GpuHealth : public ::testing::Test {
 protected:
  GpuHealth() {
    Set({{"GPU-aa00", "used=1000 utilization=0 temperature=35 power=75000 power_limit=700000"},
         {"GPU-bb00", ""}});
    // The backend's name follows that of the trainer.
    const std::string trainer = scratch_.File("trainer");
    const std::string script = absl::StrCat("#!/bin/sh\nS=", scratch_.path(), "\n", kTrainer);
    EXPECT_TRUE(WriteFileAtomically(trainer + "-cuda", script, 0755).ok());
    Yard::Options options;
    options.cpu_devices = 1;
    options.worker_flags = {"--nvml", FAKE_NVML, "--trainer", trainer, "--device_metrics_interval",
                            "1s"};
    options.worker_environment = {{"FAKE_NVML_STATE", scratch_.File("gpus")}};
    yard_.emplace(std::move(options));
    yard_->Start();
    // A worker offers the GPUs that answer when it starts.
    EXPECT_TRUE(WaitForHealth("GPU-aa00", "OK"));
    EXPECT_TRUE(WaitForHealth("GPU-bb00", "OK"));
  }

  void Set(const Gpus& gpus, const std::string& lines = "") {
    std::string text = "driver 570.86.10\n";
    for (const auto& [name, words] : gpus) {
      absl::StrAppend(&text, "gpu ", name, " name=NVIDIA_H200 memory=150754820096 ", words, "\n");
    }
    absl::StrAppend(&text, "link GPU-aa00 GPU-bb00\n", lines);
    ASSERT_TRUE(WriteFileAtomically(scratch_.File("gpus"), text).ok());
  }

  json Device(const std::string& name) {
    for (const json& device : yard_->CliJson({"devices", "ls"})) {
      if (device.value("name", "") == name) return device;
    }
    return json::object();
  }
  // Waits until `predicate` is true for the device as `trainyard devices ls` shows it.
  bool WaitForDevice(const std::string& name, const std::function<bool(const json&)>& predicate) {
    return WaitUntil([&] { return predicate(Device(name)); }, kPatience);
  }
  bool WaitForHealth(const std::string& name, const std::string& health) {
    return WaitForDevice(name, [&health](const json& device) {
      return absl::EndsWith(device.value("health", ""), health);
    });
  }
  std::string Submit(int devices) {
    return yard_->Submit(absl::StrCat(
        SmallSpec("gpu", 1, 1, 500).substr(0, SmallSpec("gpu", 1, 1, 500).rfind("devices:")),
        "devices: {type: h200, count: ", devices, "}\n"));
  }

  TempDir scratch_;
  std::optional<Yard> yard_;
};

TEST_F(GpuHealth, DevicesAreShownWithTypeIslandAndWhatTheyDo) {
  ASSERT_TRUE(WaitForDevice("GPU-aa00", [](const json& device) {
    return device.contains("usage") && device["usage"].contains("temperature_celsius");
  })) << Device("GPU-aa00");
  const json device = Device("GPU-aa00");
  EXPECT_EQ(device["type"], "h200");
  EXPECT_EQ(device["product"], "NVIDIA H200");
  EXPECT_EQ(device["island"], 1);
  EXPECT_EQ(device["usage"]["temperature_celsius"], 35);
  EXPECT_EQ(device["usage"]["power_watts"], 75);
  EXPECT_FALSE(Device("GPU-bb00")["usage"].contains("power_watts")) << "what is not told is absent";
  const std::string table = yard_->Cli({"devices", "ls"}).out;
  for (const char* words : {"75/700 W", "35 C", "UTIL", "h200", "140 GiB"}) {
    EXPECT_TRUE(absl::StrContains(table, words)) << words << " is not in\n" << table;
  }
}

TEST_F(GpuHealth, AStrangersProcessKeepsADeviceFromBeingOfferedUntilItLeaves) {
  FaultRow row({.fault = "a GPU fails",
                .injection = "a process that is not ours computes on it (fake NVML)",
                .expectation = "it is not offered until the process has left"});
  Set({{"GPU-aa00", absl::StrCat("pids=", getpid())}, {"GPU-bb00", ""}});
  ASSERT_TRUE(WaitForHealth("GPU-aa00", "UNMANAGED_USE"));
  EXPECT_TRUE(absl::StrContains(Device("GPU-aa00").value("health_reason", ""),
                                absl::StrCat("process ", getpid(), " (")));
  const std::string job = Submit(2);
  const ProcessResult explained = yard_->Cli({"explain", job});
  EXPECT_TRUE(absl::StrContains(explained.out, "is used by a process that is not ours"))
      << explained.out << explained.err;
  Set({{"GPU-aa00", ""}, {"GPU-bb00", ""}});
  EXPECT_TRUE(yard_->WaitForStep(job, 5)) << "the job starts when both are free";
  row.Count("GPUs not offered", 1);
  row.Survived();
}

TEST_F(GpuHealth, ALostGpuIsNotOfferedAndIsAgainWhenItIsBack) {
  FaultRow row(
      {.fault = "a GPU fails",
       .injection = "the driver loses one GPU and no longer lists another (fake NVML)",
       .expectation = "both are set aside with the reason, and offered when they are back"});
  Set({{"GPU-aa00", "lost"}});  // and the other is gone
  ASSERT_TRUE(WaitForHealth("GPU-aa00", "QUARANTINED"));
  ASSERT_TRUE(WaitForHealth("GPU-bb00", "QUARANTINED"));
  const std::string table = yard_->Cli({"devices", "ls"}).out;
  EXPECT_TRUE(absl::StrContains(table, "QUARANTINED (the driver has lost the GPU; reset it"))
      << table;
  EXPECT_TRUE(absl::StrContains(table, "the driver no longer lists it")) << table;
  const std::string job = Submit(1);
  const ProcessResult explained = yard_->Cli({"explain", job});
  EXPECT_TRUE(absl::StrContains(explained.out, "is quarantined: ")) << explained.out;
  Set({{"GPU-aa00", ""}});
  ASSERT_TRUE(WaitForHealth("GPU-aa00", "OK"));
  EXPECT_TRUE(yard_->WaitForStep(job, 5));
  EXPECT_EQ(Device("GPU-aa00").value("attempt", ""), absl::StrCat(job, "/attempts/1"));
  row.Count("GPUs set aside", 2);
  row.Survived();
}

TEST_F(GpuHealth, MetricsOfTheDeviceStandBesideThoseOfTheTraining) {
  const std::string job = Submit(2);
  ASSERT_TRUE(yard_->WaitForStep(job, 5));
  Set({{"GPU-aa00", "used=2000 utilization=80 temperature=66 power=512500"},
       {"GPU-bb00", "used=3000 utilization=90"}});
  // The scheduler decides which of the two is rank 0.
  ASSERT_TRUE(WaitUntil(
      [&] {
        double sum = 0;
        for (const char* name : {"gpu.utilization", "gpu.utilization.rank1"}) {
          const auto points = yard_->Metrics(job, name);
          if (!points.empty()) sum += points.back().value();
        }
        return sum == 0.8 + 0.9;
      },
      kPatience));
  ASSERT_TRUE(WriteFileAtomically(scratch_.File("go"), "").ok());
  EXPECT_EQ(yard_->WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string shown = yard_->Cli({"metrics", job}).out;
  for (const char* name : {"train.loss", "gpu.memory_bytes", "gpu.memory_bytes.rank1",
                           "gpu.power_watts", "gpu.temperature_celsius"}) {
    EXPECT_TRUE(absl::StrContains(shown, name)) << name << " is not in\n" << shown;
  }
  EXPECT_EQ(yard_->Metrics(job, "train.loss").size(), 2u) << "one of each rank, none twice";
  for (const auto& point : yard_->Metrics(job, "gpu.utilization")) EXPECT_EQ(point.step(), 5);
}

TEST_F(GpuHealth, AJobOnAGpuThatFailsGoesOnElsewhere) {
  FaultRow row({.fault = "a GPU fails",
                .injection = "Xid 79 on the GPU of a running job (fake NVML)",
                .expectation = "it is set aside for good; the job goes on elsewhere, uncharged"});
  const std::string job = Submit(1);
  ASSERT_TRUE(yard_->WaitForStep(job, 5));
  const bool on_first = Device("GPU-aa00").contains("attempt") &&
                        Device("GPU-aa00")["attempt"] == absl::StrCat(job, "/attempts/1");
  const std::string failed = on_first ? "GPU-aa00" : "GPU-bb00";
  Set({{"GPU-aa00", ""}, {"GPU-bb00", ""}}, absl::StrCat("xid 1 ", failed, " 79\n"));
  ASSERT_TRUE(yard_->WaitForJob(job, [](const Job& seen) {
    return seen.attempt() == 2 && seen.state() == v1::JOB_STATE_RUNNING;
  }));
  const json device = Device(failed);
  EXPECT_TRUE(absl::EndsWith(device.value("health", ""), "QUARANTINED")) << device;
  EXPECT_EQ(device.value("health_reason", ""),
            "Xid 79: the GPU has fallen off the bus; reset or replace it");
  EXPECT_TRUE(absl::StrContains(device.value("quarantine", ""), "has failed: Xid 79")) << device;
  EXPECT_EQ(Device(on_first ? "GPU-bb00" : "GPU-aa00").value("attempt", ""),
            absl::StrCat(job, "/attempts/2"));
  EXPECT_EQ(yard_->GetJob(job).retries(), 0) << "the job is not to blame";
  EXPECT_EQ(yard_->Metrics(job, "gpu.xid").size(), 1u);
  ASSERT_TRUE(WriteFileAtomically(scratch_.File("go"), "").ok());
  const Job ended = yard_->WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED);
  row.Count("attempts", ended.attempt());
  row.Count("retries charged", ended.retries());
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
