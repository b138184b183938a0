// Implements SQLite's VFS over files in memory, as https://www.sqlite.org/vfs.html describes it.
#include "tests/faults/power_disk.h"

#include <sqlite3.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "common/base/check.h"

namespace trainyard::testing {
namespace {

// Disks write this many bytes or none of them.
constexpr int64_t kSectorBytes = 512;

struct Handle {
  sqlite3_file base;
  PowerDisk* disk;
  PowerDisk::File* file;
  bool syncs_folder;
};

Handle* Of(sqlite3_file* file) {
  return reinterpret_cast<Handle*>(file);
}

void Apply(const PowerDisk::File::Change& change, std::string& content) {
  const auto offset = static_cast<size_t>(change.offset);
  if (change.is_cut) {
    content.resize(std::min(content.size(), offset));
    return;
  }
  if (content.size() < offset + change.bytes.size()) content.resize(offset + change.bytes.size());
  content.replace(offset, change.bytes.size(), change.bytes);
}

int Change(Handle& handle, PowerDisk::File::Change change) {
  // The change that is under way when the power goes may have reached the disk in part.
  const bool has_power = !handle.disk->is_off();
  const bool goes_on = handle.disk->TakeChange();
  if (!has_power) return SQLITE_IOERR_WRITE;
  Apply(change, handle.file->content);
  handle.file->changes.push_back(std::move(change));
  return goes_on ? SQLITE_OK : SQLITE_IOERR_WRITE;
}

int Close(sqlite3_file* file) {
  Handle& handle = *Of(file);
  handle.file->locks.erase(&handle);
  return SQLITE_OK;
}

int Read(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
  const Handle& handle = *Of(file);
  if (handle.disk->is_off()) return SQLITE_IOERR_READ;
  const std::string& content = handle.file->content;
  const auto begin = std::min(static_cast<size_t>(offset), content.size());
  const auto count = std::min(static_cast<size_t>(size), content.size() - begin);
  std::memcpy(out, content.data() + begin, count);
  if (count == static_cast<size_t>(size)) return SQLITE_OK;
  std::memset(static_cast<char*>(out) + count, 0, static_cast<size_t>(size) - count);
  return SQLITE_IOERR_SHORT_READ;
}

int Write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
  std::string bytes(static_cast<const char*>(data), static_cast<size_t>(size));
  return Change(*Of(file), {offset, std::move(bytes), false});
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  return Change(*Of(file), {size, "", true});
}

int Sync(sqlite3_file* file, int) {
  Handle& handle = *Of(file);
  if (!handle.disk->TakeChange()) return SQLITE_IOERR_FSYNC;
  if (handle.disk->lies()) return SQLITE_OK;
  handle.file->synced = handle.file->content;
  handle.file->changes.clear();
  if (handle.syncs_folder) handle.disk->SyncFolder();
  handle.syncs_folder = false;
  return SQLITE_OK;
}

int FileSize(sqlite3_file* file, sqlite3_int64* size) {
  *size = static_cast<sqlite3_int64>(Of(file)->file->content.size());
  return SQLITE_OK;
}

int Lock(sqlite3_file* file, int level) {
  Handle& handle = *Of(file);
  int others = SQLITE_LOCK_NONE;
  for (const auto& [holder, held] : handle.file->locks) {
    if (holder != &handle) others = std::max(others, held);
  }
  int& own = handle.file->locks[&handle];
  if (own >= level) return SQLITE_OK;
  if (level == SQLITE_LOCK_SHARED && others >= SQLITE_LOCK_PENDING) return SQLITE_BUSY;
  if (level == SQLITE_LOCK_RESERVED && others >= SQLITE_LOCK_RESERVED) return SQLITE_BUSY;
  if (level == SQLITE_LOCK_EXCLUSIVE && others >= SQLITE_LOCK_SHARED) {
    own = SQLITE_LOCK_PENDING;
    return SQLITE_BUSY;
  }
  own = level;
  return SQLITE_OK;
}

int Unlock(sqlite3_file* file, int level) {
  Handle& handle = *Of(file);
  int& own = handle.file->locks[&handle];
  own = std::min(own, level);
  return SQLITE_OK;
}

int CheckReservedLock(sqlite3_file* file, int* is_reserved) {
  *is_reserved = 0;
  for (const auto& [holder, held] : Of(file)->file->locks) {
    if (held >= SQLITE_LOCK_RESERVED) *is_reserved = 1;
  }
  return SQLITE_OK;
}

int FileControl(sqlite3_file*, int, void*) {
  return SQLITE_NOTFOUND;
}

int SectorSize(sqlite3_file*) {
  return 4096;  // what SQLite assumes of every disk
}

int DeviceCharacteristics(sqlite3_file*) {
  return SQLITE_IOCAP_POWERSAFE_OVERWRITE;  // what SQLite assumes of every disk
}

int ShmMap(sqlite3_file* file, int region, int size, int extend, void volatile** memory) {
  auto& regions = Of(file)->file->shared_memory;
  *memory = nullptr;
  if (regions.size() <= static_cast<size_t>(region)) {
    if (extend == 0) return SQLITE_OK;
    while (regions.size() <= static_cast<size_t>(region)) {
      regions.push_back(std::make_unique<char[]>(static_cast<size_t>(size)));
    }
  }
  *memory = regions[static_cast<size_t>(region)].get();
  return SQLITE_OK;
}

int ShmLock(sqlite3_file* file, int offset, int count, int flags) {
  const Handle& handle = *Of(file);
  PowerDisk::File& of = *handle.file;
  const auto begin = static_cast<size_t>(offset);
  const size_t end = begin + static_cast<size_t>(count);
  for (size_t slot = begin; slot < end && (flags & SQLITE_SHM_LOCK) != 0; ++slot) {
    if (of.writers[slot] != nullptr && of.writers[slot] != &handle) return SQLITE_BUSY;
    const size_t own = of.readers[slot].count(&handle);
    if ((flags & SQLITE_SHM_EXCLUSIVE) != 0 && of.readers[slot].size() > own) return SQLITE_BUSY;
  }
  for (size_t slot = begin; slot < end; ++slot) {
    if ((flags & SQLITE_SHM_LOCK) == 0) {
      of.readers[slot].erase(&handle);
      if (of.writers[slot] == &handle) of.writers[slot] = nullptr;
    } else if ((flags & SQLITE_SHM_EXCLUSIVE) != 0) {
      of.writers[slot] = &handle;
    } else {
      of.readers[slot].insert(&handle);
    }
  }
  return SQLITE_OK;
}

void ShmBarrier(sqlite3_file*) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

int ShmUnmap(sqlite3_file* file, int is_last) {
  ShmLock(file, 0, PowerDisk::File::kSlots, SQLITE_SHM_UNLOCK);
  if (is_last != 0) Of(file)->file->shared_memory.clear();
  return SQLITE_OK;
}

const sqlite3_io_methods* Methods() {
  static const sqlite3_io_methods methods = {2,
                                             Close,
                                             Read,
                                             Write,
                                             Truncate,
                                             Sync,
                                             FileSize,
                                             Lock,
                                             Unlock,
                                             CheckReservedLock,
                                             FileControl,
                                             SectorSize,
                                             DeviceCharacteristics,
                                             ShmMap,
                                             ShmLock,
                                             ShmBarrier,
                                             ShmUnmap,
                                             nullptr,
                                             nullptr};
  return &methods;
}

PowerDisk& DiskOf(sqlite3_vfs* vfs) {
  return *static_cast<PowerDisk*>(vfs->pAppData);
}

int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* out, int flags, int* out_flags) {
  PowerDisk& disk = DiskOf(vfs);
  Handle& handle = *Of(out);
  handle = {{nullptr}, &disk, nullptr, false};
  if (disk.is_off()) return SQLITE_CANTOPEN;
  // SQLite gives no path to files that it needs only for itself.
  PowerDisk::File& file = disk.Get(path == nullptr ? "temporary" : path);
  if (!file.exists) {
    if ((flags & SQLITE_OPEN_CREATE) == 0) return SQLITE_CANTOPEN;
    if (!disk.TakeChange()) return SQLITE_CANTOPEN;
    file.exists = true;
    file.content.clear();
    if ((flags & SQLITE_OPEN_MAIN_DB) != 0) {
      // The server syncs the folder of its databases before it serves.
      file.is_name_synced = true;
    } else {
      // With the first sync of a new file, SQLite syncs the folder as well.
      handle.syncs_folder = true;
    }
  }
  handle.file = &file;
  handle.base.pMethods = Methods();
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int Delete(sqlite3_vfs* vfs, const char* path, int sync_folder) {
  PowerDisk& disk = DiskOf(vfs);
  if (!disk.TakeChange()) return SQLITE_IOERR_DELETE;
  PowerDisk::File& file = disk.Get(path);
  file.exists = false;
  file.content.clear();
  file.changes.push_back({0, "", true});
  if (sync_folder != 0) disk.SyncFolder();
  return SQLITE_OK;
}

int Access(sqlite3_vfs* vfs, const char* path, int, int* result) {
  *result = DiskOf(vfs).Get(path).exists ? 1 : 0;
  return SQLITE_OK;
}

int FullPathname(sqlite3_vfs*, const char* path, int size, char* out) {
  sqlite3_snprintf(size, out, "%s", path);
  return SQLITE_OK;
}

}  // namespace

PowerDisk::PowerDisk(uint64_t seed) : random_(seed), vfs_(std::make_unique<sqlite3_vfs>()) {
  const sqlite3_vfs* real = sqlite3_vfs_find("unix");
  TY_CHECK(real != nullptr);
  *vfs_ = *real;  // for time and random numbers
  vfs_->iVersion = 1;
  vfs_->szOsFile = sizeof(Handle);
  vfs_->zName = "power";
  vfs_->pAppData = this;
  vfs_->xOpen = Open;
  vfs_->xDelete = Delete;
  vfs_->xAccess = Access;
  vfs_->xFullPathname = FullPathname;
  TY_CHECK(sqlite3_vfs_register(vfs_.get(), /*makeDflt=*/1) == SQLITE_OK);
}

PowerDisk::~PowerDisk() {
  TY_CHECK(sqlite3_vfs_unregister(vfs_.get()) == SQLITE_OK);
}

bool PowerDisk::TakeChange() {
  if (!is_off_ && changes_left_-- <= 0) is_off_ = true;
  return !is_off_;
}

void PowerDisk::SyncFolder() {
  if (lies_) return;
  for (auto& [path, file] : files_) {
    file.is_name_synced = file.exists;
    if (file.exists) continue;
    file.synced.clear();
    file.changes.clear();
  }
}

void PowerDisk::Restore() {
  for (auto& [path, file] : files_) Settle(file);
  is_off_ = false;
  changes_left_ = INT64_MAX;
}

void PowerDisk::Settle(File& file) {
  file.shared_memory.clear();
  file.locks.clear();
  // A disk keeps most of what it was given a while ago, or next to nothing, or anything between.
  const uint64_t percent_kept = std::min<uint64_t>(random_() % 150, 100);
  const bool keeps_name = file.is_name_synced || random_() % 100 < percent_kept;
  std::string content = file.synced;
  for (const File::Change& change : file.changes) {
    if (change.is_cut) {
      if (random_() % 100 < percent_kept) testing::Apply(change, content);
      continue;
    }
    int64_t kept = 0;
    int64_t lost = 0;
    const auto size = static_cast<int64_t>(change.bytes.size());
    for (int64_t begin = 0; begin < size;) {
      // The sectors are those of the file, not of the write.
      const int64_t end =
          std::min(size, begin + kSectorBytes - (change.offset + begin) % kSectorBytes);
      if (random_() % 100 < percent_kept) {
        testing::Apply(
            {change.offset + begin,
             change.bytes.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
             false},
            content);
        ++kept;
      } else {
        ++lost;
      }
      begin = end;
    }
    lost_sectors_ += lost;
    torn_writes_ += kept > 0 && lost > 0 ? 1 : 0;
  }
  file.changes.clear();
  file.exists = keeps_name && (file.exists || file.is_name_synced);
  if (!file.exists) content.clear();
  file.is_name_synced = file.exists;
  file.content = content;
  file.synced = std::move(content);
}

}  // namespace trainyard::testing
