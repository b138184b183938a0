// Makes the addresses of files.

// The address of a file of "jobs/1/checkpoints/939". Names may have folders and any letters.
export const filePath = (checkpoint, file) =>
  `/files/${checkpoint}/${file.split("/").map(encodeURIComponent).join("/")}`;
