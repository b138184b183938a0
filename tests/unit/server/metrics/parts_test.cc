// Tests of what a scrape reads besides the yard: calls, passes, commits, devices and the process.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "prometheus/text_serializer.h"
#include "server/metrics/bucket_families.h"
#include "server/metrics/call_counts.h"
#include "server/metrics/device_usage.h"
#include "server/metrics/measured.h"
#include "server/metrics/process.h"
#include "server/store/memory_store.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/server/metrics/values.h"
#include "trainyard/v1/fleet.pb.h"

namespace trainyard::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const Families& families) {
  return prometheus::TextSerializer().prometheus::Serializer::Serialize(families);
}

TEST(CallCounts, CallsAreCountedByMethodAndCode) {
  testing::ManualClock clock;
  prometheus::Registry registry;
  CallCounts calls(registry, clock);
  EXPECT_THAT(TextOf(registry.Collect()), Not(HasSubstr("GetJob"))) << "no series of zeros";
  const std::string get = "/trainyard.v1.JobService/GetJob";
  calls.Count(get, absl::StatusCode::kOk, absl::Milliseconds(1), false);
  calls.Count(get, absl::StatusCode::kOk, absl::Seconds(3), false);
  calls.Count(get, absl::StatusCode::kNotFound, absl::Milliseconds(1), false);
  calls.Count("/trainyard.v1.JobService/TailLogs", absl::StatusCode::kOk, absl::Hours(1), true);
  const std::string text = TextOf(registry.Collect());
  EXPECT_THAT(text,
              HasSubstr("trainyard_rpcs_total{code=\"OK\",method=\"JobService/GetJob\"} 2\n"));
  EXPECT_THAT(
      text, HasSubstr("trainyard_rpcs_total{code=\"NOT_FOUND\",method=\"JobService/GetJob\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_rpc_duration_seconds_bucket{method=\"JobService/GetJob\","
                              "le=\"0.002\"} 2\n"));
  EXPECT_THAT(text,
              HasSubstr("trainyard_rpcs_total{code=\"OK\",method=\"JobService/TailLogs\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("_count{method=\"JobService/TailLogs\"}")));
}

TEST(BucketFamilies, TheAgeIsThatOfTheOldestCheckpointThatWaits) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  runtime::BucketCopier::Figures figures;
  EXPECT_THAT(TextOf(BucketFamilies(figures, now)),
              HasSubstr("trainyard_bucket_oldest_waiting_seconds 0\n"));
  figures.waiting = 3;
  figures.oldest_us = 940'000'000;
  figures.sent_bytes = 12;
  figures.failures = 2;
  const std::string text = TextOf(BucketFamilies(figures, now));
  EXPECT_THAT(text, HasSubstr("trainyard_bucket_waiting_checkpoints 3\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_bucket_oldest_waiting_seconds 60\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_bucket_sent_bytes_total 12\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_bucket_failures_total 2\n"));
}

TEST(CallCounts, UnknownMethodsAndCodesMakeNoSeriesOfTheirOwn) {
  testing::ManualClock clock;
  prometheus::Registry registry;
  CallCounts calls(registry, clock);
  for (int i = 0; i < 100; ++i) {
    calls.Count(absl::StrCat("/made.up/", i), static_cast<absl::StatusCode>(100 + i),
                absl::ZeroDuration(), false);
  }
  EXPECT_THAT(TextOf(registry.Collect()),
              HasSubstr("trainyard_rpcs_total{code=\"UNKNOWN\",method=\"other\"} 100\n"));
}

TEST(Measures, CommitsArePassedOnAndTimed) {
  testing::ManualClock clock;
  prometheus::Registry registry;
  const Measures measures(registry, clock);
  store::MemoryStore memory;
  const auto measured = measures.MeasuredStore(memory);
  core::Delta delta;
  delta.revision = 1;
  ASSERT_TRUE(measured->Commit(delta).ok());
  EXPECT_EQ(memory.Load()->revision, 1);
  EXPECT_FALSE(measured->Commit(delta).ok()) << "the revision was committed before";
  const std::string text = TextOf(registry.Collect());
  EXPECT_THAT(text, HasSubstr("trainyard_commit_duration_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_commit_failures_total 1\n"));
  EXPECT_THAT(text, HasSubstr("trainyard_scheduling_pass_duration_seconds_count 0\n"));
}

TEST(DeviceFamilies, ADeviceShowsWhatItKnows) {
  v1::DeviceUsage usage;
  usage.set_utilization(0.5);
  usage.set_temperature_celsius(71);
  const Families families = DeviceFamilies({{"lab-1", {{"gpu-0", usage.SerializeAsString()}}}});
  const LabelMap labels = {{"worker", "lab-1"}, {"device", "gpu-0"}};
  EXPECT_EQ(ValueOf(families, "trainyard_device_utilization_ratio", labels), 0.5);
  EXPECT_EQ(ValueOf(families, "trainyard_device_temperature_celsius", labels), 71);
  EXPECT_EQ(ValueOf(families, "trainyard_device_power_watts", labels), std::nullopt);
  EXPECT_EQ(ValueOf(families, "trainyard_device_slowed", labels), 0);
}

TEST(DeviceFamilies, TheNumberOfDevicesIsBounded) {
  PoolUsage usage;
  for (int i = 0; i < 10; ++i) usage[absl::StrCat("lab-", i)]["gpu-0"] = "";
  const Families families = DeviceFamilies(usage, /*devices_max=*/4);
  EXPECT_EQ(ValuesOf(families, "trainyard_device_slowed").size(), 4u);
  EXPECT_EQ(ValueOf(families, "trainyard_devices_left_out"), 6);
}

TEST(ProcessFamilies, TheFilesOfTheProcessAreRead) {
  testing::TempDir dir;
  dir.Write(
      "stat",
      "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 2000 4096000 1000 1844674\n");
  const std::string system = dir.Write("system", "cpu 1 2\nbtime 1800000000\n");
  const Families families = ProcessFamilies(StartOfProcess(dir.path(), system), dir.path());
  EXPECT_EQ(ValueOf(families, "process_cpu_seconds_total"), 2);
  EXPECT_EQ(ValueOf(families, "process_threads"), 9);
  EXPECT_EQ(ValueOf(families, "process_virtual_memory_bytes"), 4096000);
  EXPECT_EQ(ValueOf(families, "process_resident_memory_bytes"), 4096000);
  EXPECT_EQ(ValueOf(families, "process_start_time_seconds"), 1800000020);
}

TEST(ProcessFamilies, WhatCannotBeReadIsLeftOut) {
  testing::TempDir dir;
  EXPECT_TRUE(ProcessFamilies(1, dir.path()).empty());
  dir.Write("stat", "7 (a) S 1\n");
  EXPECT_TRUE(ProcessFamilies(1, dir.path()).empty());
}

TEST(DiskFamilies, DatabasesAreAddedUpWithTheirLogs) {
  testing::TempDir dir;
  dir.Write("trainyard.db", "12345");
  dir.Write("trainyard.db-wal", "678");
  dir.Write("ready", "x");
  const Families families = DiskFamilies(dir.path());
  EXPECT_EQ(ValuesOf(families, "trainyard_store_size_bytes"),
            (std::map<LabelMap, double>{{{{"store", "trainyard"}}, 8}}));
  EXPECT_GT(ValueOf(families, "trainyard_disk_size_bytes").value_or(0), 0);
}

TEST(BackupFamilies, TimesOfFilesAreThoseOfBackups) {
  testing::TempDir dir;
  EXPECT_TRUE(BackupFamilies(dir.path()).empty());
  std::filesystem::create_directories(dir.File("backups/folder"));
  dir.Write("backups/snapshot", "");
  dir.Write("backups/continuous", "");
  const timespec time = {1'795'860'000, 5};
  const timespec times[] = {time, time};
  ASSERT_EQ(utimensat(AT_FDCWD, dir.File("backups/snapshot").c_str(), times, 0), 0);
  const auto values =
      ValuesOf(BackupFamilies(dir.path()), "trainyard_backup_last_success_timestamp_seconds");
  EXPECT_EQ(values.size(), 2u);
  EXPECT_EQ(values.at({{"kind", "snapshot"}}), 1'795'860'000.0);
}

}  // namespace
}  // namespace trainyard::metrics
