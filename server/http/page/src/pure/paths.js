// Makes the addresses of files.

// The address of a file of "jobs/1/checkpoints/939" or "jobs/1/outputs". Names may have folders and any letters.
export const filePath = (folder, file) =>
  `/files/${folder}/${file.split("/").map(encodeURIComponent).join("/")}`;
