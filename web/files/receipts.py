"""How a write that is stored is answered."""

from shared.files.lifecycle.placement import wait_while_staged
from shared.files.resources import Availability, Receipt
from web.files import schemas
from web.files.preferences import read_preference
from web.files.responses import content_url
from web.framework.calls import JsonResponse, RequestContext


def time_limit_seconds(call: RequestContext, byte_size: int) -> float:
    """Give how long the reception of so many bytes may take."""
    settings = call.services.settings
    return settings.upload_grace_seconds + byte_size / settings.upload_minimum_bytes_per_second


def receipt_answer(call: RequestContext, receipt: Receipt, *, first_status: int) -> JsonResponse:
    """Answer with the stored version: at once if readers find it, else when it is placed or the wait is over."""
    settings = call.services.settings
    preference = read_preference(
        call.http.headers.get("Prefer"), longest_wait_seconds=settings.upload_wait_seconds
    )
    is_pending = preference.responds_async and not receipt.replayed
    if receipt.availability is Availability.PENDING:
        is_pending = wait_while_staged(call.services.database, receipt.version.id, preference.wait_seconds)
    url = content_url(call, receipt.version.file_id)
    headers = {"Location": f"{settings.base_url}/files/{receipt.version.file_id}"}
    if preference.applied:
        headers["Preference-Applied"] = preference.applied
    if is_pending:
        return JsonResponse(body=schemas.PendingUploadResult.of(receipt, url), status=202, headers=headers)
    status = 200 if receipt.replayed else first_status
    return JsonResponse(body=schemas.UploadResult.of(receipt, url), status=status, headers=headers)
