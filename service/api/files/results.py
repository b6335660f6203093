"""The content of a result file: a job's metrics as CSV, in base64 as OpenAI serves it."""

import base64

from fastapi.responses import Response

from service.api.deps import Parts
from service.api.http.responses import as_download
from service.db.files.files import File
from service.db.jobs import results
from service.domain.errors import FileNotFound, Gone

CSV = "text/csv"


async def result_content(parts: Parts, file: File, accept: str) -> Response:
    """Return the CSV in base64, or as it is where the caller accepts text/csv."""
    async with parts.engine.connect() as conn:  # a cursor needs a transaction
        job_id = await results.job_of(conn, file.id)
        if job_id is None:
            raise FileNotFound(f"File {file.id} no longer belongs to a job.")
        data = b"".join([part async for part in results.content(conn, job_id)])
    if len(data) < file.bytes:
        raise Gone(
            f"File {file.id} is no longer available: its job's metrics were deleted,"
            " REKINDLE_METRIC_DAYS days after the job ended."
        )
    headers = as_download(file.filename)
    if CSV in accept:
        return Response(data, media_type=CSV, headers=headers)
    encoded = base64.b64encode(data)
    return Response(encoded, media_type="application/octet-stream", headers=headers)
