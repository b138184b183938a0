// The note and the tags of a job, and how they are changed.
import { useState } from "preact/hooks";
import { call } from "../api.js";
import { html } from "../html.js";
import { mayChange } from "../session.js";
import { ErrorBox } from "../widgets.js";

export function Notes({ job, row, onChange }) {
  const [draft, setDraft] = useState(null);
  const [tag, setTag] = useState("");
  const [error, setError] = useState(null);
  const may = mayChange(row.user);
  const added = job.added_tags ?? [];
  const change = async (request) => {
    setError(null);
    try {
      onChange(await call("JobService/AnnotateJob", { name: job.name, ...request }));
      return true;
    } catch (failure) {
      setError(failure);
      return false;
    }
  };
  const save = async (event) => {
    event.preventDefault();
    if (await change({ note: draft })) setDraft(null);
  };
  const addTag = async (event) => {
    event.preventDefault();
    if (tag.trim() && (await change({ add_tags: tag.trim().split(/[\s,]+/) }))) setTag("");
  };
  const description = job.resolved_spec?.description;
  return html`<section class="notes" aria-label="Note and tags">
    ${description && html`<p class="description">${description}</p>`}
    <div class="notes-row">
      ${(job.resolved_spec?.tags ?? []).map(
        (each) => html`<span class="tag tag-large" key=${`s${each}`} title="of the spec">${each}</span>`,
      )}
      ${added.map(
        (each) =>
          html`<span class="tag tag-large" key=${each}
            >${each}${
              may &&
              html`<button
                type="button"
                class="tag-remove"
                aria-label=${`Remove the tag ${each}`}
                onClick=${() => change({ remove_tags: [each] })}
              >
                ×
              </button>`
            }</span
          >`,
      )}
      ${
        may &&
        html`<form onSubmit=${addTag}>
          <input
            class="input input-tag"
            placeholder="Add a tag"
            aria-label="Add a tag"
            maxlength="200"
            value=${tag}
            onInput=${(event) => setTag(event.target.value)}
          />
        </form>`
      }
      ${
        draft === null &&
        !job.note &&
        may &&
        html`<button type="button" class="button button-quiet button-small" onClick=${() => setDraft("")}>
          Write a note
        </button>`
      }
    </div>
    ${
      draft === null
        ? job.note &&
          html`<div class="note">
            <p class="note-text">${job.note}</p>
            ${
              may &&
              html`<button type="button" class="button button-quiet button-small" onClick=${() => setDraft(job.note)}>
                Edit
              </button>`
            }
          </div>`
        : html`<form class="note-form" onSubmit=${save}>
            <textarea
              class="input"
              rows="3"
              maxlength="4096"
              aria-label="Note"
              value=${draft}
              autofocus
              onInput=${(event) => setDraft(event.target.value)}
            ></textarea>
            <span
              ><button class="button button-primary button-small">Save the note</button>
              <button type="button" class="button button-quiet button-small" onClick=${() => setDraft(null)}>
                Go back
              </button></span
            >
          </form>`
    }
    <${ErrorBox} error=${error} />
  </section>`;
}
