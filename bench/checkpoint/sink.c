/* A blob store with the operations of Blob Storage that the contestants use, at wire speed.
 *
 * usage: sink WARM_MIB check|ignore [CERTIFICATE.pem]
 *
 * It stores blobs in memory only and checks no signature. It prints its ports in one line and ends
 * when its standard input closes. WARM_MIB of memory is touched before the first request and then
 * reused, because page faults would cost more than the wire. `check` computes the CRC-64/NVME of
 * every body and refuses a mismatch.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK ((size_t)1 << 20)
#define HEAD_MAX ((size_t)64 << 10)
#define WORD 256  /* maximum length of a header's value and of a block id */
#define PATH 2048

typedef struct { int refs; size_t size, count; char **chunk; } Block;
typedef struct { char id[WORD]; Block *block; } Part;
typedef struct Blob {
    int refs, count;
    char *name, *meta; /* meta: x-ms-meta header lines */
    char modified[40];
    Part *parts;
    size_t size;
    unsigned long etag;
    struct Blob *next;
} Blob;
typedef struct { int fd; SSL *tls; char *head; size_t have, used; } Wire;
typedef struct {
    char method[8], path[PATH], query[PATH];
    char *head; /* header lines, NUL-terminated */
    size_t length;
} Request;
typedef struct { int listener, raw; SSL_CTX *tls; } Door;
typedef struct { int fd, raw; SSL_CTX *tls; } Guest;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Blob *blobs, *staged; /* committed blobs; uncommitted blocks */
static char **spare;
static size_t spares, spares_room;
static unsigned long etags = 1, bytes_in, bytes_out;
static int checks;
static uint64_t crc_table[8][256];

/* ---- memory ---- */

static char *take_chunk(void) {
    char *found = NULL;
    pthread_mutex_lock(&lock);
    if (spares) found = spare[--spares];
    pthread_mutex_unlock(&lock);
    return found ? found : malloc(CHUNK);
}

static void give_chunk(char *chunk) { /* the caller holds the lock */
    if (spares == spares_room) spare = realloc(spare, (spares_room = spares_room * 2 + 64) * sizeof *spare);
    spare[spares++] = chunk;
}

static Block *new_block(size_t size) {
    Block *b = calloc(1, sizeof *b);
    b->refs = 1, b->size = size, b->count = (size + CHUNK - 1) / CHUNK;
    b->chunk = calloc(b->count + 1, sizeof *b->chunk);
    for (size_t i = 0; i < b->count; i++) {
        size_t rest = size - i * CHUNK;
        b->chunk[i] = rest < CHUNK ? malloc(rest) : take_chunk();
    }
    return b;
}

static void drop_block(Block *b) { /* the caller holds the lock */
    if (--b->refs) return;
    for (size_t i = 0; i < b->count; i++) {
        if (b->size - i * CHUNK < CHUNK) free(b->chunk[i]);
        else give_chunk(b->chunk[i]);
    }
    free(b->chunk), free(b);
}

static void drop_blob(Blob *b) { /* the caller holds the lock */
    if (!b || --b->refs) return;
    for (int i = 0; i < b->count; i++) drop_block(b->parts[i].block);
    free(b->parts), free(b->name), free(b->meta), free(b);
}

static Blob *find(Blob *from, const char *name) {
    while (from && strcmp(from->name, name)) from = from->next;
    return from;
}

static void cut(Blob **from, const char *name) {
    for (; *from; from = &(*from)->next)
        if (!strcmp((*from)->name, name)) {
            Blob *gone = *from;
            *from = gone->next;
            drop_blob(gone);
            return;
        }
}

static Blob *new_blob(const char *name, const char *meta) {
    Blob *b = calloc(1, sizeof *b);
    time_t now = time(NULL);
    struct tm t;
    b->refs = 1, b->name = strdup(name), b->meta = strdup(meta), b->etag = etags++;
    strftime(b->modified, sizeof b->modified, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &t));
    return b;
}

static void add_part(Blob *b, const char *id, Block *block) {
    if ((b->count & (b->count - 1)) == 0)
        b->parts = realloc(b->parts, (size_t)(b->count ? b->count * 2 : 1) * sizeof *b->parts);
    snprintf(b->parts[b->count].id, WORD, "%s", id);
    b->parts[b->count++].block = block;
    b->size += block->size;
}

static Part *find_part(Blob *b, const char *id) {
    for (int i = 0; b && i < b->count; i++)
        if (!strcmp(b->parts[i].id, id)) return &b->parts[i];
    return NULL;
}

/* ---- CRC-64/NVME, as in x-ms-content-crc64 ---- */

static void make_crc_table(void) {
    for (int i = 0; i < 256; i++) {
        uint64_t c = (uint64_t)i;
        for (int k = 0; k < 8; k++) c = c & 1 ? (c >> 1) ^ 0x9A6C9329AC4BC9B5u : c >> 1;
        crc_table[0][i] = c;
    }
    for (int i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_table[k][i] = crc_table[0][crc_table[k - 1][i] & 255] ^ (crc_table[k - 1][i] >> 8);
}

static uint64_t crc_of(Block *b) {
    uint64_t c = ~0ull, w;
    for (size_t i = 0; i < b->count; i++) {
        size_t n = b->size - i * CHUNK < CHUNK ? b->size - i * CHUNK : CHUNK, at = 0;
        for (; at + 8 <= n; at += 8) {
            memcpy(&w, b->chunk[i] + at, 8);
            w ^= c, c = 0;
            for (int k = 0; k < 8; k++) c ^= crc_table[7 - k][(w >> (8 * k)) & 255];
        }
        for (; at < n; at++) c = crc_table[0][(c ^ (unsigned char)b->chunk[i][at]) & 255] ^ (c >> 8);
    }
    return ~c;
}

static void base64(uint64_t value, char *to) { /* of its eight bytes in little-endian order */
    const char *set = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char raw[9] = {0};
    memcpy(raw, &value, 8);
    for (int i = 0; i < 9; i += 3, to += 4) {
        unsigned v = (unsigned)raw[i] << 16 | (unsigned)raw[i + 1] << 8 | raw[i + 2];
        for (int k = 0; k < 4; k++) to[k] = set[v >> (18 - 6 * k) & 63];
    }
    strcpy(to - 1, "=");
}

/* ---- connections and requests ---- */

static ssize_t receive(Wire *w, void *to, size_t n) {
    if (!w->tls) return recv(w->fd, to, n, 0);
    int got = SSL_read(w->tls, to, n > CHUNK ? (int)CHUNK : (int)n);
    return got <= 0 ? -1 : got;
}

static int send_all(Wire *w, const char *from, size_t n) {
    while (n) {
        ssize_t done = w->tls ? SSL_write(w->tls, from, (int)(n > CHUNK ? CHUNK : n))
                              : send(w->fd, from, n, MSG_NOSIGNAL);
        if (done <= 0) return -1;
        from += done, n -= (size_t)done;
    }
    return 0;
}

static int read_exactly(Wire *w, char *to, size_t n) {
    size_t ready = w->have - w->used < n ? w->have - w->used : n;
    memcpy(to, w->head + w->used, ready);
    w->used += ready;
    for (to += ready, n -= ready; n;) {
        ssize_t got = receive(w, to, n);
        if (got <= 0) return -1;
        to += got, n -= (size_t)got;
    }
    return 0;
}

static Block *read_body(Wire *w, size_t length) {
    Block *b = new_block(length);
    for (size_t i = 0; i < b->count; i++) {
        size_t n = length - i * CHUNK < CHUNK ? length - i * CHUNK : CHUNK;
        if (read_exactly(w, b->chunk[i], n)) {
            pthread_mutex_lock(&lock), drop_block(b), pthread_mutex_unlock(&lock);
            return NULL;
        }
    }
    return b;
}

static int hex(char c) { return isdigit((unsigned char)c) ? c - '0' : tolower(c) - 'a' + 10; }

static void unquote(char *to, const char *from, size_t n) { /* decodes percent-encoding */
    size_t at = 0;
    for (size_t i = 0; i < n && at + 1 < PATH; i++) {
        if (from[i] == '%' && i + 2 < n) to[at++] = (char)(hex(from[i + 1]) * 16 + hex(from[i + 2])), i += 2;
        else to[at++] = from[i];
    }
    to[at] = 0;
}

static int header(const Request *r, const char *name, char *to) {
    size_t n = strlen(name);
    *to = 0;
    for (char *line = strstr(r->head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, n) && line[2 + n] == ':') {
            char *from = line + 3 + n;
            while (*from == ' ') from++;
            snprintf(to, WORD, "%.*s", (int)strcspn(from, "\r"), from);
            return 1;
        }
    return 0;
}

static int parameter(const Request *r, const char *name, char *to) {
    size_t n = strlen(name);
    *to = 0;
    for (const char *at = r->query; *at; at += strcspn(at, "&"), at += *at == '&')
        if (!strncmp(at, name, n) && at[n] == '=') {
            unquote(to, at + n + 1, strcspn(at + n + 1, "&"));
            return 1;
        }
    return 0;
}

static int read_request(Wire *w, Request *r) {
    memmove(w->head, w->head + w->used, w->have - w->used);
    w->have -= w->used, w->used = 0;
    char *end;
    while (w->head[w->have] = 0, !(end = strstr(w->head, "\r\n\r\n"))) {
        if (w->have >= HEAD_MAX - 1) return -1;
        ssize_t got = receive(w, w->head + w->have, HEAD_MAX - 1 - w->have);
        if (got <= 0) return -1;
        w->have += (size_t)got;
    }
    w->used = (size_t)(end - w->head) + 4;
    free(r->head);
    r->head = strndup(w->head, (size_t)(end - w->head));
    char target[PATH], value[WORD];
    if (sscanf(r->head, "%7s %2047s", r->method, target) != 2) return -1;
    size_t n = strcspn(target, "?");
    unquote(r->path, target, n);
    snprintf(r->query, PATH, "%s", target[n] ? target + n + 1 : "");
    r->length = header(r, "Content-Length", value) ? strtoul(value, NULL, 10) : 0;
    if (header(r, "Transfer-Encoding", value)) return -1;
    if (header(r, "Expect", value)) return send_all(w, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    return 0;
}

/* ---- answers ---- */

static int answer(Wire *w, const char *status, const char *more, const char *body) {
    char *text;
    int n = asprintf(&text,
                     "HTTP/1.1 %s\r\nContent-Length: %zu\r\nx-ms-version: 2026-06-06\r\n"
                     "x-ms-request-id: 0\r\n%s\r\n%s",
                     status, strlen(body), more, body);
    int failed = n < 0 || send_all(w, text, (size_t)n);
    free(text);
    return failed ? -1 : 0;
}

static int refuse(Wire *w, const Request *r, const char *status, const char *code) {
    char more[200], body[300];
    snprintf(more, sizeof more, "x-ms-error-code: %s\r\nContent-Type: application/xml\r\n", code);
    snprintf(body, sizeof body, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message></Error>", code, code);
    return answer(w, status, more, strcmp(r->method, "HEAD") ? body : "");
}

static void tag(const Blob *b, char *to, size_t room) {
    snprintf(to, room, "ETag: \"0x%lX\"\r\nLast-Modified: %s\r\nx-ms-request-server-encrypted: true\r\n",
             b->etag, b->modified);
}

/* Returns whether an ETag in a condition matches; its quotes may be missing. */
static int means(const char *told, const Blob *there) {
    char mine[40];
    int n = snprintf(mine, sizeof mine, "\"0x%lX\"", there->etag);
    return !strcmp(told, "*") || !strcmp(told, mine) || (!strncmp(told, mine + 1, (size_t)n - 2) && !told[n - 2]);
}

/* Checks the conditions; returns NULL or "status\ncode". The caller holds the lock. */
static const char *against(const Request *r, const Blob *there) {
    char value[WORD];
    if (header(r, "If-None-Match", value) && there && means(value, there))
        return strcmp(value, "*") ? "412 Precondition Failed\nConditionNotMet" : "409 Conflict\nBlobAlreadyExists";
    if (header(r, "If-Match", value) && (!there || !means(value, there)))
        return "412 Precondition Failed\nConditionNotMet";
    return NULL;
}

static int refuse_as(Wire *w, const Request *r, const char *why) {
    char status[80];
    snprintf(status, sizeof status, "%.*s", (int)strcspn(why, "\n"), why);
    return refuse(w, r, status, strchr(why, '\n') + 1);
}

static char *metadata(const Request *r) {
    char *all = calloc(1, strlen(r->head) + 3);
    for (char *line = strstr(r->head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, "x-ms-meta-", 10)) {
            strncat(all, line + 2, strcspn(line + 2, "\r"));
            strcat(all, "\r\n");
        }
    return all;
}

/* Publishes `fresh` unless a condition fails; takes ownership of it. */
static int publish(Wire *w, const Request *r, Blob *fresh, const char *status, const char *more) {
    char named[300], all[600];
    pthread_mutex_lock(&lock);
    const char *why = against(r, find(blobs, r->path));
    tag(fresh, named, sizeof named);
    if (why) drop_blob(fresh);
    else {
        cut(&blobs, r->path), cut(&staged, r->path);
        fresh->next = blobs, blobs = fresh;
    }
    pthread_mutex_unlock(&lock);
    if (why) return refuse_as(w, r, why);
    snprintf(all, sizeof all, "%s%s", named, more);
    return answer(w, status, all, "");
}

static int mismatched(const Request *r, Block *body, char *more) {
    char told[WORD], found[20];
    *more = 0;
    if (!checks) return 0;
    base64(crc_of(body), found);
    sprintf(more, "x-ms-content-crc64: %s\r\n", found);
    return header(r, "x-ms-content-crc64", told) && strcmp(told, found);
}

static int stage(Wire *w, const Request *r, Block *body, const char *more) {
    char id[PATH];
    parameter(r, "blockid", id);
    pthread_mutex_lock(&lock);
    Blob *waiting = find(staged, r->path);
    if (!waiting) waiting = new_blob(r->path, ""), waiting->next = staged, staged = waiting;
    Part *there = find_part(waiting, id);
    if (there) drop_block(there->block), there->block = body;
    else add_part(waiting, id, body);
    pthread_mutex_unlock(&lock);
    return answer(w, "201 Created", more, "");
}

static int commit(Wire *w, const Request *r, Block *body) {
    char *list = malloc(body->size + 1), *meta = metadata(r), id[WORD];
    for (size_t i = 0; i < body->count; i++)
        memcpy(list + i * CHUNK, body->chunk[i], body->size - i * CHUNK < CHUNK ? body->size - i * CHUNK : CHUNK);
    list[body->size] = 0;
    int lost = 0;
    pthread_mutex_lock(&lock);
    Blob *fresh = new_blob(r->path, meta), *waiting = find(staged, r->path), *old = find(blobs, r->path);
    for (char *at = strchr(list, '<'); at; at = strchr(at + 1, '<')) {
        int latest = !strncmp(at, "<Latest>", 8), kept = !strncmp(at, "<Committed>", 11);
        if (!latest && !kept && strncmp(at, "<Uncommitted>", 13)) continue;
        char *from = strchr(at, '>') + 1;
        snprintf(id, sizeof id, "%.*s", (int)strcspn(from, "<"), from);
        Part *part = kept ? NULL : find_part(waiting, id);
        if (!part && (latest || kept)) part = find_part(old, id);
        if (part) part->block->refs++, add_part(fresh, id, part->block);
        else lost = 1;
    }
    drop_block(body);
    if (lost) drop_blob(fresh);
    pthread_mutex_unlock(&lock);
    free(list), free(meta);
    return lost ? refuse(w, r, "400 Bad Request", "InvalidBlockList") : publish(w, r, fresh, "201 Created", "");
}

static int copy(Wire *w, const Request *r, const char *source) {
    char path[PATH], *meta = metadata(r);
    const char *from = strstr(source, "://");
    from = from ? strchr(from + 3, '/') : source;
    unquote(path, from, strcspn(from, "?"));
    pthread_mutex_lock(&lock);
    Blob *old = find(blobs, path), *fresh = old ? new_blob(r->path, meta) : NULL;
    for (int i = 0; old && i < old->count; i++)
        old->parts[i].block->refs++, add_part(fresh, old->parts[i].id, old->parts[i].block);
    pthread_mutex_unlock(&lock);
    free(meta);
    if (!fresh) return refuse(w, r, "404 Not Found", "BlobNotFound");
    return publish(w, r, fresh, "202 Accepted", "x-ms-copy-id: 0\r\nx-ms-copy-status: success\r\n");
}

static int put(Wire *w, const Request *r) {
    char comp[PATH], source[WORD], more[80];
    Block *body = read_body(w, r->length);
    if (!body) return -1;
    parameter(r, "comp", comp);
    __atomic_fetch_add(&bytes_in, r->length, __ATOMIC_RELAXED);
    if (mismatched(r, body, more)) {
        pthread_mutex_lock(&lock), drop_block(body), pthread_mutex_unlock(&lock);
        return refuse(w, r, "400 Bad Request", "Crc64Mismatch");
    }
    if (!strcmp(comp, "block")) return stage(w, r, body, more);
    if (!strcmp(comp, "blocklist")) return commit(w, r, body);
    if (!*comp && header(r, "x-ms-blob-type", source) && !strcmp(source, "BlockBlob")) {
        char *meta = metadata(r);
        pthread_mutex_lock(&lock);
        Blob *fresh = new_blob(r->path, meta);
        add_part(fresh, "", body);
        pthread_mutex_unlock(&lock);
        free(meta);
        return publish(w, r, fresh, "201 Created", more);
    }
    pthread_mutex_lock(&lock), drop_block(body), pthread_mutex_unlock(&lock);
    if (header(r, "x-ms-copy-source", source)) return copy(w, r, source);
    return refuse(w, r, "501 Not Implemented", "NotImplemented");
}

static int send_span(Wire *w, const Blob *b, size_t from, size_t length) {
    for (int i = 0; i < b->count && length; i++) {
        const Block *block = b->parts[i].block;
        if (from >= block->size) { from -= block->size; continue; }
        while (length && from < block->size) {
            size_t n = CHUNK - from % CHUNK;
            if (n > block->size - from) n = block->size - from;
            if (n > length) n = length;
            if (send_all(w, block->chunk[from / CHUNK] + from % CHUNK, n)) return -1;
            from += n, length -= n;
        }
        from = 0;
    }
    return 0;
}

static int get(Wire *w, const Request *r) {
    char value[WORD], named[300], head[2000];
    pthread_mutex_lock(&lock);
    Blob *b = find(blobs, r->path);
    const char *why = b ? against(r, b) : "404 Not Found\nBlobNotFound";
    if (!why) b->refs++, tag(b, named, sizeof named);
    pthread_mutex_unlock(&lock);
    if (why) return refuse_as(w, r, why);
    size_t from = 0, to = b->size;
    int whole = !header(r, "x-ms-range", value) && !header(r, "Range", value), failed = 0;
    if (!whole) {
        char *rest;
        from = strtoul(value + strlen("bytes="), &rest, 10);
        if (isdigit((unsigned char)rest[1]) && strtoul(rest + 1, NULL, 10) + 1 < to) to = strtoul(rest + 1, NULL, 10) + 1;
    }
    if (!whole && from >= b->size) failed = refuse(w, r, "416 Range Not Satisfiable", "InvalidRange");
    else {
        char span[120] = "";
        if (!whole) snprintf(span, sizeof span, "Content-Range: bytes %zu-%zu/%zu\r\n", from, to - 1, b->size);
        int n = snprintf(head, sizeof head,
                         "HTTP/1.1 %s\r\nContent-Length: %zu\r\nContent-Type: application/octet-stream\r\n"
                         "Accept-Ranges: bytes\r\nx-ms-blob-type: BlockBlob\r\nx-ms-version: 2026-06-06\r\n%s%s%s\r\n",
                         whole ? "200 OK" : "206 Partial Content", to - from, span, named, b->meta);
        failed = send_all(w, head, (size_t)n);
        if (!failed && strcmp(r->method, "HEAD")) {
            failed = send_span(w, b, from, to - from);
            __atomic_fetch_add(&bytes_out, to - from, __ATOMIC_RELAXED);
        }
    }
    pthread_mutex_lock(&lock), drop_blob(b), pthread_mutex_unlock(&lock);
    return failed;
}

/* ---- containers ---- */

static int by_name(const void *a, const void *b) {
    return strcmp((*(Blob *const *)a)->name, (*(Blob *const *)b)->name);
}

static void describe(FILE *to, const Blob *b, const char *name) {
    fprintf(to, "<Blob><Name>%s</Name><Properties><Last-Modified>%s</Last-Modified><Etag>0x%lX</Etag>"
                "<Content-Length>%zu</Content-Length><Content-Type>application/octet-stream</Content-Type>"
                "<BlobType>BlockBlob</BlobType></Properties><Metadata>",
            name, b->modified, b->etag, b->size);
    for (char *line = b->meta; *line; line = strstr(line, "\r\n") + 2) {
        int key = (int)strcspn(line, ":") - 10, rest = (int)strcspn(line, "\r") - key - 11;
        char *value = line + 11 + key;
        while (*value == ' ') value++, rest--;
        fprintf(to, "<%.*s>%.*s</%.*s>", key, line + 10, rest, value, key, line + 10);
    }
    fputs("</Metadata></Blob>", to);
}

static int list(Wire *w, const Request *r) {
    char prefix[PATH], delimiter[PATH], seen[PATH] = "", *body;
    size_t length, count = 0, at = strlen(r->path) + 1;
    parameter(r, "prefix", prefix), parameter(r, "delimiter", delimiter);
    FILE *to = open_memstream(&body, &length);
    fputs("<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>", to);
    pthread_mutex_lock(&lock);
    for (Blob *b = blobs; b; b = b->next) count++;
    Blob **all = calloc(count + 1, sizeof *all);
    count = 0;
    for (Blob *b = blobs; b; b = b->next)
        if (!strncmp(b->name, r->path, at - 1) && b->name[at - 1] == '/' && !strncmp(b->name + at, prefix, strlen(prefix)))
            all[count++] = b;
    qsort(all, count, sizeof *all, by_name);
    for (size_t i = 0; i < count; i++) {
        char *name = all[i]->name + at, *stop = *delimiter ? strstr(name + strlen(prefix), delimiter) : NULL;
        if (!stop) { describe(to, all[i], name); continue; }
        size_t n = (size_t)(stop - name) + strlen(delimiter);
        if (!strncmp(seen, name, n) && strlen(seen) == n) continue;
        snprintf(seen, PATH, "%.*s", (int)n, name);
        fprintf(to, "<BlobPrefix><Name>%s</Name></BlobPrefix>", seen);
    }
    pthread_mutex_unlock(&lock);
    fputs("</Blobs><NextMarker/></EnumerationResults>", to);
    fclose(to), free(all);
    int failed = answer(w, "200 OK", "Content-Type: application/xml\r\n", body);
    free(body);
    return failed;
}

static void empty(Blob **from, const char *container) {
    size_t n = strlen(container);
    while (*from) {
        Blob *b = *from;
        if (!strncmp(b->name, container, n) && b->name[n] == '/') *from = b->next, drop_blob(b);
        else from = &b->next;
    }
}

static int container(Wire *w, const Request *r) {
    char comp[PATH];
    if (parameter(r, "comp", comp) && !strcmp(comp, "list")) return list(w, r);
    if (!strcmp(r->method, "DELETE")) {
        pthread_mutex_lock(&lock), empty(&blobs, r->path), empty(&staged, r->path), pthread_mutex_unlock(&lock);
        return answer(w, "202 Accepted", "", "");
    }
    const char *tagged = "ETag: \"0x0\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
    return answer(w, strcmp(r->method, "PUT") ? "200 OK" : "201 Created", tagged, "");
}

static int remove_blob(Wire *w, const Request *r) {
    pthread_mutex_lock(&lock);
    Blob *there = find(blobs, r->path);
    const char *why = there ? against(r, there) : "404 Not Found\nBlobNotFound";
    if (!why) cut(&blobs, r->path);
    pthread_mutex_unlock(&lock);
    return why ? refuse_as(w, r, why) : answer(w, "202 Accepted", "", "");
}

static int serve(Wire *w, const Request *r) {
    char value[PATH], said[120];
    if (!strcmp(r->path, "/stats")) {
        snprintf(said, sizeof said, "{\"bytes_in\": %lu, \"bytes_out\": %lu}", bytes_in, bytes_out);
        return answer(w, "200 OK", "Content-Type: application/json\r\n", said);
    }
    if (parameter(r, "restype", value) && !strcmp(value, "container")) return container(w, r);
    if (!strcmp(r->method, "PUT")) return put(w, r);
    if (!strcmp(r->method, "DELETE")) return remove_blob(w, r);
    if (!strcmp(r->method, "GET") || !strcmp(r->method, "HEAD")) return get(w, r);
    return refuse(w, r, "501 Not Implemented", "NotImplemented");
}

/* Raw protocol: 'S' + length receives bytes and answers 'k'; 'R' + length sends bytes. */
static int serve_raw(Wire *w, char *scratch) {
    unsigned char order[9];
    uint64_t left;
    if (read_exactly(w, (char *)order, sizeof order)) return -1;
    memcpy(&left, order + 1, 8);
    for (; left; left -= left < CHUNK ? left : CHUNK) {
        size_t n = left < CHUNK ? left : CHUNK;
        if (order[0] == 'S' ? read_exactly(w, scratch, n) : send_all(w, scratch, n)) return -1;
    }
    return order[0] == 'S' ? send_all(w, "k", 1) : 0;
}

static void *host(void *given) {
    Guest guest = *(Guest *)given;
    free(given);
    int one = 1;
    setsockopt(guest.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Wire w = {guest.fd, NULL, malloc(HEAD_MAX), 0, 0};
    Request r = {.head = NULL};
    char *scratch = guest.raw ? calloc(1, CHUNK) : NULL;
    if (guest.tls) w.tls = SSL_new(guest.tls), SSL_set_fd(w.tls, w.fd);
    if (!guest.tls || SSL_accept(w.tls) > 0)
        while (guest.raw ? !serve_raw(&w, scratch) : !read_request(&w, &r) && !serve(&w, &r)) ;
    if (w.tls) SSL_free(w.tls), ERR_clear_error();
    close(w.fd), free(w.head), free(r.head), free(scratch);
    return NULL;
}

static void *welcome(void *given) {
    Door *door = given;
    for (;;) {
        Guest *guest = malloc(sizeof *guest);
        pthread_t thread;
        *guest = (Guest){accept(door->listener, NULL, NULL), door->raw, door->tls};
        if (guest->fd < 0 || pthread_create(&thread, NULL, host, guest)) { free(guest); continue; }
        pthread_detach(thread);
    }
    return NULL;
}

static int opened(int raw, SSL_CTX *tls) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    Door *door = malloc(sizeof *door);
    pthread_t thread;
    *door = (Door){socket(AF_INET, SOCK_STREAM, 0), raw, tls};
    if (bind(door->listener, (void *)&at, size) || listen(door->listener, 512)) { perror("sink"); exit(1); }
    getsockname(door->listener, (void *)&at, &size);
    pthread_create(&thread, NULL, welcome, door);
    return ntohs(at.sin_port);
}

int main(int count, char **words) {
    if (count < 3) { fprintf(stderr, "usage: sink WARM_MIB check|ignore [CERTIFICATE.pem]\n"); return 2; }
    signal(SIGPIPE, SIG_IGN);
    checks = !strcmp(words[2], "check");
    make_crc_table();
    for (long n = atol(words[1]); n > 0; n--) {
        char *chunk = malloc(CHUNK);
        memset(chunk, 1, CHUNK);
        give_chunk(chunk);
    }
    SSL_CTX *tls = NULL;
    if (count > 3) {
        tls = SSL_CTX_new(TLS_server_method());
        if (SSL_CTX_use_certificate_chain_file(tls, words[3]) <= 0 || SSL_CTX_use_PrivateKey_file(tls, words[3], SSL_FILETYPE_PEM) <= 0) {
            fprintf(stderr, "sink: %s holds no certificate with its key\n", words[3]);
            return 1;
        }
        SSL_CTX_set_read_ahead(tls, 1);
    }
    printf("sink ready: %d %d", opened(0, NULL), opened(1, NULL));
    if (tls) printf(" %d %d", opened(0, tls), opened(1, tls));
    printf("\n"), fflush(stdout);
    while (getchar() != EOF) ;
    return 0;
}
