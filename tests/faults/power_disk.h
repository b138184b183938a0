// Simulates a disk that loses power under SQLite. What is written is lost, in any order and torn
// at sectors, unless it was synced. The disk is a VFS in memory, so a thousand losses of power take
// seconds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

struct sqlite3_vfs;

namespace trainyard::testing {

// The disk is SQLite's default VFS while it lives. Only one may live at a time, and all connections
// to it are used by one thread and closed before it is destroyed.
class PowerDisk {
 public:
  // A file as it is now, and as it surely is after a loss of power.
  struct File {
    std::string content;
    bool exists = false;
    std::string synced;
    bool is_name_synced = false;
    // The changes since the last sync. One without bytes cuts the file at the offset.
    struct Change {
      int64_t offset = 0;
      std::string bytes;
      bool is_cut = false;
    };
    std::vector<Change> changes;

    // The levels of SQLite's locks, by the handle that holds them.
    std::map<const void*, int> locks;
    // The memory that the connections share, which no power keeps.
    std::vector<std::unique_ptr<char[]>> shared_memory;
    static constexpr size_t kSlots = 8;
    std::set<const void*> readers[kSlots];
    const void* writers[kSlots] = {};
  };

  explicit PowerDisk(uint64_t seed);
  ~PowerDisk();
  PowerDisk(const PowerDisk&) = delete;
  PowerDisk& operator=(const PowerDisk&) = delete;

  // The power goes at the change of a file that follows this many others. Everything fails then,
  // until Restore.
  void CutAfter(int64_t changes) { changes_left_ = changes; }
  bool is_off() const { return is_off_; }
  // Decides what of the unsynced changes has reached the disk, and gives power again. The
  // connections must be closed.
  void Restore();

  // Makes the disk forget what it was told to sync, as a broken one does.
  void set_lies(bool lies) { lies_ = lies; }

  // Returns the number of sectors that were written and are lost.
  int64_t lost_sectors() const { return lost_sectors_; }
  // Returns the number of writes of which only a part is kept.
  int64_t torn_writes() const { return torn_writes_; }

  // The methods of the VFS.
  File& Get(const std::string& path) { return files_[path]; }
  // Returns false if the power is off, or goes now.
  bool TakeChange();
  // Makes sure which files there are.
  void SyncFolder();
  bool lies() const { return lies_; }

 private:
  void Settle(File& file);

  std::mt19937_64 random_;
  std::map<std::string, File> files_;
  std::unique_ptr<sqlite3_vfs> vfs_;
  int64_t changes_left_ = INT64_MAX;
  bool is_off_ = false;
  bool lies_ = false;
  int64_t lost_sectors_ = 0;
  int64_t torn_writes_ = 0;
};

}  // namespace trainyard::testing
